-- What sessions that several processes share have spent, and what those in flight may cost, a row a process.

CREATE TABLE budgets (
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    spent_usd DOUBLE PRECISION NOT NULL,
    doubtful_usd DOUBLE PRECISION NOT NULL,
    reserved_usd DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (name, owner)
);
