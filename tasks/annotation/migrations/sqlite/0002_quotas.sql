-- Caps a minute that all processes of this ledger share: when the next request, and the next token, may leave.

CREATE TABLE quotas (
    name TEXT PRIMARY KEY,
    next_request_at REAL NOT NULL,
    next_token_at REAL NOT NULL
) WITHOUT ROWID;
