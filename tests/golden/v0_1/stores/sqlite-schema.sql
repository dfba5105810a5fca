CREATE TABLE documents (key TEXT NOT NULL UNIQUE, value BLOB, version INTEGER NOT NULL)
CREATE INDEX documents_deleted ON documents (version) WHERE value IS NULL
CREATE INDEX documents_living ON documents (key) WHERE value IS NOT NULL
CREATE UNIQUE INDEX documents_version ON documents (version)
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, ttl REAL NOT NULL, expires REAL NOT NULL, boot TEXT NOT NULL
) WITHOUT ROWID
1346719315
1
