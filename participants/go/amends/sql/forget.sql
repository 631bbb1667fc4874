INSERT INTO amends_barrier_horizon (id, forgotten_before) VALUES (1, $1)
ON CONFLICT (id) DO UPDATE
SET forgotten_before = greatest(amends_barrier_horizon.forgotten_before, excluded.forgotten_before)
