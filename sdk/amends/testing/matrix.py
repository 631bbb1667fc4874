"""The fault matrix: a saga is played once for every fault at every call of it, each time in a new world, and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeGuard, TypeVar

from google.protobuf.message import Message

from amends.saga import Saga
from amends.testing.cases import FaultCase, cases_of
from amends.testing.report import FaultMatrixFailure, Result
from amends.testing.virtual_stage import play
from amends.testing.world import Trait, WorldMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

In = TypeVar("In", bound=Message)
Out = TypeVar("Out", bound=Message | None)


class FaultMatrix(Generic[In, Out]):
    """Every fault at every call of a saga.

        ORDER = FaultMatrix(order, input=PlaceOrder(sku="x"), world=ShopWorld)

        @pytest.mark.fault_matrix(ORDER)
        def test_order_survives(fault_case: MatrixCase) -> None:
            fault_case.run()

    Args:
        saga: the saga.
        input: what it is started with; without faults it commits with that.
        world: makes the world of one case: an async context manager whose value is the `World`.
        forbid: what of an end is not allowed, where it would be.
    """

    def __init__(
        self,
        saga: Saga[In, Out],
        *,
        input: In,  # noqa: A002 - the word that definitions use
        world: WorldMaker,
        forbid: Collection[Trait] = (),
    ) -> None:
        self.saga, self.input, self.world, self.forbid = saga, input, world, frozenset(forbid)

    def __repr__(self) -> str:
        return f"<fault matrix of {self.saga.name!r}>"

    def cases(self) -> tuple[FaultCase, ...]:
        """Every case, in the order of the steps; nothing is run for that."""
        return cases_of(self.saga)

    def case(self, name: str) -> FaultCase:
        """The case of this name.

        Raises:
            LookupError: there is none; the text says what there is.
        """
        found = {case.name: case for case in self.cases()}
        if name not in found:
            near = [each for each in found if each.split("/")[:2] == name.split("/")[:2]]
            raise LookupError(
                f"the matrix of {self.saga.name!r} has no case {name!r}; it has: {', '.join(near or found)}"
            )
        return found[name]

    def run(self, case: FaultCase | str, *, seed: int = 0) -> Result:
        """Plays a case on virtual time, on an event loop of its own, and judges. The same seed gives the same play.

        To be called where no event loop runs.
        """
        return play(self, self.case(case) if isinstance(case, str) else case, seed=seed)


AnyMatrix: TypeAlias = FaultMatrix[Any, Any]  # whatever its saga takes and gives


def is_matrix(given: object) -> TypeGuard[AnyMatrix]:
    """Whether this is a fault matrix."""
    return isinstance(given, FaultMatrix)


class MatrixCase:
    """A case of a matrix as a test gets it.

    Args:
        matrix: the matrix.
        case: the case.
        seed: what ids and chance are made from.
        replay: the command that runs exactly this test again.
        unmet: is told why the case says nothing, where what goes wrong in it never could: `pytest.skip`, for example.

    Attributes:
        replay: as above.
        was_run: whether `run` was called.
    """

    def __init__(
        self,
        matrix: AnyMatrix,
        case: FaultCase,
        *,
        seed: int = 0,
        replay: str = "",
        unmet: Callable[[str], object] | None = None,
    ) -> None:
        self.matrix, self.case, self.seed, self.replay, self._unmet = matrix, case, seed, replay, unmet
        self.was_run = False

    def __repr__(self) -> str:
        return f"<case {self.case.name}>"

    def run(self) -> Result:
        """Plays the case.

        Raises:
            FaultMatrixFailure: the world is not consistent; the text tells the whole story.
        """
        __tracebackhide__ = True  # pytest shows the story, not this frame
        self.was_run = True
        result = self.matrix.run(self.case, seed=self.seed)
        if not result.consistent:
            raise FaultMatrixFailure(result.told(replay=self.replay))
        if not result.met and self._unmet is not None:
            self._unmet(f"what goes wrong in {self.case.name} never could")
        return result
