"""Draws the tables and diagrams of docs/ from the code that they speak of, or checks that they are fresh.

A page keeps its own words; between `<!-- drawn: NAME -->` and `<!-- end of NAME -->` stands what this file draws.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from opentelemetry.metrics import CallbackT, Counter, Histogram, NoOpMeter, ObservableGauge
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from amends import barrier
from amends.barrier import rules
from amends.testing.cases import cases_of
from amends.v1.error_reason_pb2 import ErrorReason
from amends_coordinator.grpc_api.errors import RULES
from amends_coordinator.grpc_api.operator_service import OperatorService
from amends_coordinator.grpc_api.registry_service import RegistryService
from amends_coordinator.grpc_api.saga_service import SagaService
from amends_coordinator.grpc_api.services import PUBLIC_SERVICES
from amends_coordinator.settings import PREFIX, Settings
from amends_coordinator.system import SystemClock
from amends_coordinator.telemetry import names
from amends_coordinator.telemetry.gauges import Gauges
from amends_coordinator.telemetry.metrics import Metrics
from bank.saga import transfer
from shop.saga import order

CHECKOUT = Path(__file__).resolve().parent.parent
COORDINATOR = CHECKOUT / "coordinator" / "amends_coordinator"
PACKAGES = ("core", "definitions", "ports", "engine", "ledger", "calls", "telemetry", "grpc_api")
GENERATED = "amends.v1"
GO_STATEMENTS = CHECKOUT / "participants" / "go" / "amends" / "sql"
PROTOS = CHECKOUT / "proto" / "amends" / "v1"
SERVICERS = {"SagaService": SagaService, "RegistryService": RegistryService, "OperatorService": OperatorService}

COMMENTED = re.compile(
    r"(?P<comment>(?:^ *//[^\n]*\n)+) *(?:rpc (?P<rpc>\w+)\(|(?P<value>ERROR_REASON_\w+) =)", re.MULTILINE
)
NOT_YET = re.compile(r" ?Not yet: UNIMPLEMENTED\.")


def methods() -> str:
    """Every method of the public services; those that the servicers lack answer `UNIMPLEMENTED`, as `handlers` does."""
    rows = [
        (service.name, f"`{method.name}`", "yes" if hasattr(SERVICERS[service.name], method.name) else "not yet", said)
        for service in PUBLIC_SERVICES
        for method in service.methods
        for said in [NOT_YET.sub("", first_sentence(comments()[method.name]))]
    ]
    return table(("service", "method", "works", "what it does"), rows)


def reasons() -> str:
    """Every error reason with its status code, as the coordinator's own table gives it."""
    codes = {rule.reason: rule.code.name for rule in RULES}
    rows = [
        (f"`{name.removeprefix('ERROR_REASON_')}`", f"`{codes[number]}`", meaning(comments()[name]))
        for name, number in ErrorReason.items()
        if number in codes
    ]
    return table(("reason", "status", "what it means, and what to do"), rows)


def settings() -> str:
    """Every setting of the coordinator, with its default and its own documentation."""
    rows = [(f"`{PREFIX}{name.upper()}`", *described(name, said)) for name, said in setting_texts().items()]
    return table(("environment variable", "default", "meaning"), rows)


def described(name: str, said: str) -> tuple[str, str]:
    """A setting's default, as the code has it, and its meaning, without the default that the text repeats."""
    default = Settings.model_fields[name].default
    meaning, _, about = said.partition(" Default")
    value, _, condition = about.partition("; ")
    shown = f"`{default}`" if default != "" else value.strip(": .")
    return shown, f"{meaning} {condition[:1].upper()}{condition[1:]}".rstrip()


def setting_texts() -> Mapping[str, str]:
    """What stands below each field of `Settings`, by the field's name."""
    return texts_below(Settings)


def texts_below(described: type[object]) -> Mapping[str, str]:
    """What stands below each name that a class assigns, by the name; what has nothing below it is left out."""
    body = ast.parse(inspect.getsource(described)).body[0]
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]),
                ast.Expr(value=ast.Constant(str(said))),
            ):
                texts[name] = " ".join(said.split())
            case _:
                pass
    return texts


def comments() -> Mapping[str, str]:
    """The comments above the methods and error reasons of the protos, by name, each on one line."""
    found: dict[str, str] = {}
    for proto in sorted(PROTOS.glob("*.proto")):
        for match in COMMENTED.finditer(proto.read_text("utf-8")):
            lines = (line.strip().removeprefix("//").strip() for line in match["comment"].splitlines())
            found[match["rpc"] or match["value"]] = " ".join(lines)
    return found


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    return re.split(r"(?<=\.) ", text, maxsplit=1)[0]


def meaning(comment: str) -> str:
    """A reason's comment without the status code that it begins with: that has a column of its own."""
    return comment.partition(": ")[2]


def table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table as Markdown writes it."""
    lines = (titles, tuple("---" for _ in titles), *rows)
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def folders() -> str:
    """What each package of the coordinator is for and what may be in it, as its own docstring says."""
    rows: list[tuple[str, ...]] = []
    for name in PACKAGES:
        said = ast.get_docstring(ast.parse((COORDINATOR / name / "__init__.py").read_text("utf-8"))) or ""
        job, _, rest = said.partition("\n\n")
        rows.append((f"`{name}`", " ".join(job.split()), " ".join(rest.split())))
    return table(("folder", "job", "what may be in it, and what not"), rows)


def imports_diagram() -> str:
    """Who imports whom, as a mermaid diagram; what follows from other arrows is left out."""
    edges = sorted(reduced(imports()), key=lambda edge: (PACKAGES.index(edge[0]), edge[1]))
    lines = [f"    {importer} --> {imported}" for importer, imported in edges]
    return "\n".join(["```mermaid", "flowchart BT", *lines, "```"]) + "\n"


def imports() -> set[tuple[str, str]]:
    """Every package with every other one that a module of it imports, for type checkers or for good."""
    return {
        (package, imported)
        for package in PACKAGES
        for path in (COORDINATOR / package).rglob("*.py")
        for imported in _imported(ast.parse(path.read_text("utf-8")))
        if imported != package
    }


def reduced(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges that say something which the others together don't."""
    return {(a, b) for a, b in edges if b not in _reached(a, edges - {(a, b)})}


def _reached(start: str, edges: set[tuple[str, str]]) -> set[str]:
    direct = {imported for importer, imported in edges if importer == start}
    return direct.union(*(_reached(name, edges) for name in direct))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name.startswith(f"{COORDINATOR.name}."):
                yield name.split(".")[1]
            elif name.startswith(f"{GENERATED}."):
                yield GENERATED


def barrier_tables() -> str:
    """The barrier's tables as PostgreSQL wants them, each column with its comment."""
    return code("sql", barrier_ddl())


def barrier_ddl() -> str:
    """The statements that make the barrier's tables on PostgreSQL."""
    statements: list[str] = []
    for made in barrier.TABLES.sorted_tables:
        lines = _compiled(CreateTable(made, if_not_exists=True)).splitlines()
        statements.append("\n".join(_commented(line, made) for line in lines))
        statements += [_compiled(CreateIndex(index, if_not_exists=True)) for index in made.indexes]
    return "".join(f"{statement};\n" for statement in statements)


def _compiled(statement: CreateTable | CreateIndex) -> str:
    text = str(statement.compile(dialect=postgresql.dialect())).strip().expandtabs(4)  # type: ignore[no-untyped-call]  # SQLAlchemy's dialects aren't typed
    return "\n".join(line.rstrip() for line in text.splitlines())


def _commented(line: str, made: Table) -> str:
    column = made.columns.get(line.split()[0]) if line.startswith(" ") else None
    return line if column is None or not column.comment else f"{line}  -- {column.comment}"


def barrier_rules() -> str:
    """What a barrier does with a call, by what stands in the row that it asks about."""
    titles = ("the row is", *(question.value.replace("_", " ") for question in rules.Question))
    cells = (
        (f"`{found}`", *(f"{rules.RULES[question].get(found, '-')}".replace("_", " ") for question in rules.Question))
        for found in rules.Found
    )
    return table(titles, cells)


def barrier_states() -> str:
    """What each state of a row means."""
    return table(("the row is", "what is known of the key"), words(rules.Found))


def barrier_answers() -> str:
    """What each word of the barrier's rules means."""
    return table(("rule", "what happens"), words(rules.Do))


def words(enum: type[StrEnum]) -> list[tuple[str, ...]]:
    """Each member of an enum with what stands below it."""
    texts = texts_below(enum)
    return [(f"`{member.value.replace('_', ' ')}`", texts[member.name]) for member in enum]


def go_statement(name: str) -> str:
    """A statement of the participant in Go, which keeps the barrier's rules by hand."""
    return code("sql", (GO_STATEMENTS / f"{name}.sql").read_text("utf-8"))


def metrics() -> str:
    """Every metric, as its instrument describes itself, with its name on the page for Prometheus."""
    drawn = _Drawn("drawn")
    Metrics(drawn, Gauges(SystemClock()))
    labels = {name: ", ".join(f"`{label}`" for label in found) for name, found in names.LABELS.items()}
    rows = [
        (f"`{each.name}`", each.kind, labels.get(each.name, ""), f"`{each.shown_as}`", each.description)
        for each in sorted(drawn.instruments, key=lambda each: each.name)
    ]
    return table(("metric", "kind", "labels", "for Prometheus", "what it says"), rows)


@dataclass(frozen=True, slots=True)
class _Instrument:
    """One instrument, as it was made."""

    name: str
    kind: str
    unit: str
    description: str

    @property
    def shown_as(self) -> str:
        """What OpenTelemetry's exporter for Prometheus makes of its name."""
        words = [self.name.replace(".", "_"), *(["seconds"] if self.unit == "s" else [])]
        return "_".join([*words, *(["total"] if self.kind == "counter" else [])])


class _Drawn(NoOpMeter):
    """Remembers the instruments that are made of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.instruments: list[_Instrument] = []

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Counter:
        """Remember a counter."""
        self.instruments.append(_Instrument(name, "counter", unit, description))
        return super().create_counter(name, unit, description)

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float] | None = None,
    ) -> Histogram:
        """Remember a histogram."""
        self.instruments.append(_Instrument(name, "histogram", unit, description))
        return super().create_histogram(name, unit, description)

    def create_observable_gauge(
        self, name: str, callbacks: Sequence[CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> ObservableGauge:
        """Remember a gauge."""
        self.instruments.append(_Instrument(name, "gauge", unit, description))
        return super().create_observable_gauge(name, callbacks, unit, description)


def code(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text}```\n"


def faults() -> str:
    """Every fault of a fault matrix, and the calls at which it strikes, as the cases of two sagas have them."""
    calls: dict[tuple[str, str], dict[str, None]] = {}
    for case in (*cases_of(order), *cases_of(transfer)):
        calls.setdefault((case.fault, case.story), {})[case.call] = None
    rows = [(f"`{fault}`", story, ", ".join(where)) for (fault, story), where in calls.items() if fault != "no-fault"]
    return table(("fault", "what goes wrong", "at each"), rows)


DRAWN: Mapping[str, Callable[[], str]] = {
    "methods": methods,
    "reasons": reasons,
    "settings": settings,
    "folders": folders,
    "imports": imports_diagram,
    "faults": faults,
    "barrier tables": barrier_tables,
    "barrier rules": barrier_rules,
    "barrier states": barrier_states,
    "barrier answers": barrier_answers,
    "metrics": metrics,
    **{
        f"statement {name}": partial(go_statement, name)
        for name in ("bound_waits", "claim", "read", "finish", "refuse", "horizon", "forget", "purge")
    },
}
PAGES = tuple(
    CHECKOUT / "docs" / f"{name}.md" for name in ("api", "settings", "architecture", "barrier", "testing", "telemetry")
)


def fresh(text: str) -> str:
    """A page with its tables drawn anew."""
    for name, draw in DRAWN.items():
        begin, end = f"<!-- drawn: {name} -->\n", f"<!-- end of {name} -->"
        if begin in text:
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}\n{draw()}\n{end}{rest.partition(end)[2]}"
    return text


def stale_pages() -> Iterator[Path]:
    """The pages whose tables aren't what the code says."""
    yield from (page for page in PAGES if page.read_text("utf-8") != fresh(page.read_text("utf-8")))


def main() -> int:
    """Draw the tables, or with --check compare; 0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a committed table is stale")
    check = bool(parser.parse_args().check)
    stale = [*stale_pages()]
    for page in stale:
        if check:
            print(f"{page.relative_to(CHECKOUT)} is stale: run tools/draw_tables.py", file=sys.stderr)
        else:
            page.write_text(fresh(page.read_text("utf-8")), "utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
