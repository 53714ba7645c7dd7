-- Requests, their attempts, provider batches, and the processes that hold claims.

-- Long texts, kept once: a system prompt stands in hundreds of thousands of requests.
CREATE TABLE texts (
    sha256 TEXT PRIMARY KEY,
    text TEXT NOT NULL
);

-- A process that asks. Its claims hold as long as it is alive: seen lately, or running on this host.
CREATE TABLE runs (
    owner TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started_at DOUBLE PRECISION NOT NULL,
    seen_at DOUBLE PRECISION NOT NULL
);

CREATE TABLE requests (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key BYTEA NOT NULL UNIQUE,                       -- SHA-256 of body, 32 bytes
    model TEXT NOT NULL,
    body TEXT NOT NULL,                             -- the canonical form
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'answered', 'rejected')),
    owner TEXT,                                     -- runs.owner, or batch:<batches.id>
    answer TEXT,                                    -- JSON
    reason TEXT,
    detail TEXT,
    parser INTEGER,                                 -- version of the code that read the raw response
    reply_model TEXT,                               -- the model's name as the server reports it
    created_at DOUBLE PRECISION NOT NULL,
    settled_at DOUBLE PRECISION
);
CREATE INDEX requests_owner ON requests (owner) WHERE owner IS NOT NULL;

CREATE TABLE attempts (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id BIGINT NOT NULL REFERENCES requests (id),
    number INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('received', 'ok', 'unusable', 'failed')),
    error_type TEXT,
    detail TEXT,
    raw TEXT,                                       -- what the server sent, before anybody read it
    input_tokens BIGINT NOT NULL DEFAULT 0,
    output_tokens BIGINT NOT NULL DEFAULT 0,
    cost_usd DOUBLE PRECISION NOT NULL DEFAULT 0,
    latency_s DOUBLE PRECISION NOT NULL DEFAULT 0,
    started_at DOUBLE PRECISION NOT NULL,
    batch_id TEXT
);
CREATE UNIQUE INDEX attempts_number ON attempts (request_id, number);

CREATE TABLE batches (
    id TEXT PRIMARY KEY,                            -- our intent, which travels in the provider's metadata
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('intended', 'submitted', 'done', 'failed')),
    provider_id TEXT,
    owner TEXT,
    requests INTEGER NOT NULL,
    detail TEXT,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL
);
CREATE TABLE batch_requests (
    batch_id TEXT NOT NULL REFERENCES batches (id),
    request_id BIGINT NOT NULL REFERENCES requests (id),
    PRIMARY KEY (batch_id, request_id)
);
