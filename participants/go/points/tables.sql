CREATE TABLE IF NOT EXISTS account (
    customer_id TEXT PRIMARY KEY,
    point_count INTEGER NOT NULL CHECK (point_count >= 0),
    watched     BOOLEAN NOT NULL DEFAULT false
);
CREATE TABLE IF NOT EXISTS spend (
    spend_id    TEXT PRIMARY KEY,
    customer_id TEXT NOT NULL REFERENCES account,
    point_count INTEGER NOT NULL,
    given_back  BOOLEAN NOT NULL DEFAULT false
);
