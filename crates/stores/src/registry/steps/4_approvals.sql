-- What waits for a person, and what became of it. `request` is what was asked and never changes; the columns beside
-- it are for finding rows, or change with the state.
CREATE TABLE approvals (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    intent TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    user TEXT NOT NULL,
    tool TEXT NOT NULL,
    digest TEXT NOT NULL,
    runs INTEGER NOT NULL,
    state TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    request TEXT NOT NULL,
    -- Of the request and the outcome.
    bytes INTEGER NOT NULL,
    decided INTEGER,
    decided_by TEXT,
    reason TEXT,
    ended INTEGER,
    outcome TEXT,
    -- Whether the requester has had the outcome.
    delivered INTEGER NOT NULL DEFAULT 0,
    -- Whether the audit log has the one record of the call.
    recorded INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX approvals_by_call ON approvals (tenant, user, tool, digest, number);
CREATE INDEX approvals_decided ON approvals (tenant, user, tool, decided) WHERE decided IS NOT NULL;
CREATE INDEX approvals_by_tenant ON approvals (tenant, number);
CREATE INDEX approvals_pending ON approvals (tenant, bytes) WHERE state = 'pending';
CREATE INDEX approvals_by_expiry ON approvals (expires) WHERE state = 'pending';
CREATE INDEX approvals_approved ON approvals (number) WHERE state = 'approved' AND runs = 1;
CREATE INDEX approvals_unrecorded ON approvals (number) WHERE recorded = 0 AND ended IS NOT NULL;
CREATE INDEX approvals_ended ON approvals (ended, bytes) WHERE ended IS NOT NULL;

CREATE TABLE standing_approvals (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    until INTEGER NOT NULL,
    -- The row as people see it.
    standing TEXT NOT NULL,
    revoked INTEGER,
    revoked_by TEXT
) STRICT;
