-- The layout of the first release, with an open job, a complete one and one that expired.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
    id       INTEGER PRIMARY KEY,
    jid      TEXT NOT NULL UNIQUE,
    created  INTEGER NOT NULL,
    user     TEXT NOT NULL,
    fun      TEXT NOT NULL,
    tgt      TEXT NOT NULL,
    tgt_type TEXT NOT NULL,
    nocache  INTEGER NOT NULL,
    state    INTEGER NOT NULL,
    load     BLOB NOT NULL,
    notes    BLOB
) STRICT;
CREATE INDEX jobs_created ON jobs (created);
CREATE INDEX jobs_open ON jobs (id) WHERE state = 0;

CREATE TABLE expected_part (
    id      INTEGER PRIMARY KEY,
    jid     TEXT NOT NULL,
    minions TEXT NOT NULL
) STRICT;
CREATE INDEX expected_part_jid ON expected_part (jid);

CREATE TABLE returns (
    id       INTEGER PRIMARY KEY,
    jid      TEXT NOT NULL,
    minion   TEXT NOT NULL,
    received INTEGER NOT NULL,
    fun      TEXT NOT NULL,
    retcode  INTEGER NOT NULL,
    success  INTEGER NOT NULL,
    load     BLOB NOT NULL,
    UNIQUE (jid, minion)
) STRICT;

CREATE VIEW expected AS
    SELECT DISTINCT jid, value AS minion FROM expected_part, json_each(minions);
CREATE VIEW missing AS
    SELECT jid, minion FROM expected EXCEPT SELECT jid, minion FROM returns;
INSERT INTO meta VALUES ('identity', '0123');
INSERT INTO jobs (id, jid, created, user, fun, tgt, tgt_type, nocache, state, load) VALUES
    (1, '20261121070622000001', 5, 'root', 'test.ping', '*', 'glob', 0, 0, x'80'),
    (2, '20261121070622000002', 5, 'root', 'test.ping', '*', 'glob', 0, 1, x'80'),
    (3, '20261121070622000003', 5, 'root', 'test.ping', '*', 'glob', 0, 1, x'80');
INSERT INTO expected_part (jid, minions) VALUES
    ('20261121070622000001', '["a"]'), ('20261121070622000002', '["a"]'), ('20261121070622000003', '["a", "b"]');
INSERT INTO returns (jid, minion, received, fun, retcode, success, load) VALUES
    ('20261121070622000002', 'a', 6, 'test.ping', 0, 1, x'80'), ('20261121070622000003', 'a', 6, 'test.ping', 0, 1, x'80');
PRAGMA application_id = 1399616622;
PRAGMA user_version = 1;
