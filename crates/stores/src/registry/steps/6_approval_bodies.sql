-- What only the person who decides, and the call itself, need in full. Large, so it stands apart: lists don't read it,
-- and it goes when the request is over. `approvals.request` has a summary from here on; the rows that are there are
-- divided by the code that knows what a summary is, right after this.
CREATE TABLE approval_bodies (
    number INTEGER PRIMARY KEY,
    -- Arguments, preview and what the session has read.
    body TEXT NOT NULL
) STRICT;

ALTER TABLE approvals ADD COLUMN credential TEXT NOT NULL DEFAULT '';
-- While it waits; `bytes` counts the rest.
ALTER TABLE approvals ADD COLUMN body_bytes INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER approvals_over AFTER UPDATE OF ended ON approvals WHEN new.ended IS NOT NULL BEGIN
    DELETE FROM approval_bodies WHERE number = new.number;
END;
CREATE TRIGGER approvals_forgotten AFTER DELETE ON approvals BEGIN
    DELETE FROM approval_bodies WHERE number = old.number;
END;

DROP INDEX approvals_pending;
CREATE INDEX approvals_pending ON approvals (tenant, credential, bytes, body_bytes) WHERE state = 'pending';
CREATE INDEX approvals_by_credential ON approvals (tenant, credential, number);
DROP INDEX approvals_ended;
CREATE INDEX approvals_ended ON approvals (ended) WHERE ended IS NOT NULL;
CREATE INDEX approvals_kept ON approvals (tenant, delivered, state, ended, recorded, expires, bytes)
    WHERE ended IS NOT NULL;

-- Labels of a credential are those of one role: an operator's token also carries the agents that act in other contexts.
CREATE TABLE labels_by_role (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    holder TEXT NOT NULL,
    -- Of a credential; empty for a session, which has one context.
    context TEXT NOT NULL,
    trust TEXT NOT NULL,
    source TEXT NOT NULL,
    origin TEXT,
    first_seen INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, holder, context, trust, source)
) STRICT, WITHOUT ROWID;
INSERT INTO labels_by_role
    SELECT tenant, kind, holder, '', trust, source, origin, first_seen, expires FROM labels WHERE kind <> 'credential';
-- In which role something was read is not known: it counts in each that the credential may take.
INSERT INTO labels_by_role
    SELECT read.tenant, read.kind, read.holder, known.name, read.trust, read.source, read.origin, read.first_seen,
        read.expires
    FROM labels AS read
    JOIN (SELECT name FROM contexts UNION SELECT context FROM tokens) AS known
    LEFT JOIN tokens ON tokens.id = read.holder
    WHERE read.kind = 'credential'
        AND (tokens.id IS NULL OR tokens.tier = 'operator' OR tokens.context = known.name);
DROP TABLE labels;
ALTER TABLE labels_by_role RENAME TO labels;
CREATE INDEX labels_by_expiry ON labels (expires);
