"""How the shadow's PostgreSQL is set up: small, quick to start, and with nothing in it that could do harm.

What reaches it are queries of people whom we do not trust, under a role of their own that owns nothing and
may read little. That leaves functions. Those that read files, write, run SQL given as text (which nobody has
looked at), hold locks or touch other connections are closed to everybody but the owner. ``set_config`` is
the one that would undo the limits of a session: it is replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from penstock.server.base import DATABASE, PUBLIC
from penstock.server.shadow import feeding
from penstock.server.shadow.catalog import definitions
from penstock.server.shadow.catalog.twins import create_schema
from penstock.server.shadow.postgres.link import Link, literal
from penstock.sql.parse.known_names import DENIED_PREFIXES, POSTGRES_DENIED

OWNER = "penstock_system"
"""The superuser, whom only we are; owner of all twins."""

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "40",
    "superuser_reserved_connections": "3",
    "shared_buffers": "16MB",
    "huge_pages": "off",
    # It is a cache: what a crash of the machine breaks is made anew.
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "32MB",
    "min_wal_size": "2MB",
    "autovacuum": "off",
    "jit": "off",
    "io_method": "sync",
    "max_worker_processes": "0",
    "max_parallel_workers_per_gather": "0",
    "max_prepared_transactions": "0",
    # All twins are made in one transaction, and each takes a few locks.
    "max_locks_per_transaction": "1024",
    "event_triggers": "off",
    # Statements are other people's and stay out of files.
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
    # What a role may not exceed, since it cannot set anything.
    "default_transaction_read_only": "on",
    "statement_timeout": "300s",
    "idle_in_transaction_session_timeout": "60s",
    "temp_file_limit": "256MB",
    "work_mem": "8MB",
    "hash_mem_multiplier": "1",
    "password_encryption": "scram-sha-256",
}

CLOSED = (
    # files of the server
    "pg_read_file", "pg_read_binary_file", "pg_stat_file", "pg_ls_%", "pg_current_logfile",
    # large objects
    "lo\\_%", "loread", "lowrite", "lo_import", "lo_export",
    # SQL as text
    "query_to_xml%", "cursor_to_xml%", "table_to_xml%", "schema_to_xml%", "database_to_xml%",
    "ts_stat", "ts_rewrite",
    # other connections and the server
    "pg_terminate_backend", "pg_cancel_backend", "pg_reload_conf", "pg_rotate_logfile", "pg_notify",
    "pg_advisory_lock%", "pg_advisory_xact%", "pg_advisory_unlock", "pg_advisory_unlock_shared",
    "pg_try_advisory%",
    "pg_export_snapshot", "pg_log_backend_memory_contexts",
    "pg_promote", "pg_switch_wal", "pg_create_%", "pg_drop_%", "pg_copy_%_slot", "pg_logical_%",
    "pg_replication_%", "pg_backup_%", "pg_wal_replay_%", "pg_stat_reset%", "pg_sync_replication_slots",
    "pg_import_system_collations", "pg_extension_config_dump", "pg_restore_%_stats", "pg_clear_%_stats",
    "binary_upgrade_%", "pg_nextoid", "pg_prewarm%", "pg_config", "pg_hba_file_rules",
    "pg_ident_file_mappings", "pg_show_all_file_settings", "nextval", "setval",
)  # fmt: skip
"""Patterns of LIKE for the names of functions that only the owner may call, besides those that are refused
before they come here.
"""


def closed() -> list[str]:
    """Patterns of LIKE for the names of all functions that only the owner may call.

    What `penstock.sql.statements.safety` refuses is among them: should it ever read a statement otherwise
    than PostgreSQL does, the function is still not to be had.
    """
    exact = [_like(name) for name in sorted(POSTGRES_DENIED)]
    return [*CLOSED, *exact, *(f"{_like(prefix)}%" for prefix in sorted(DENIED_PREFIXES))]


def _like(name: str) -> str:
    return name.replace("_", "\\_")


_SET_CONFIG = """
ALTER FUNCTION pg_catalog.set_config(text, text, boolean) RENAME TO pg_set_config;
REVOKE EXECUTE ON FUNCTION pg_catalog.pg_set_config(text, text, boolean) FROM PUBLIC;
CREATE FUNCTION pg_catalog.set_config(setting_name text, new_value text, is_local boolean) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Drivers switch it off around their own queries; it is off.
    IF lower(setting_name) IN ('jit') THEN RETURN new_value; END IF;
    RAISE insufficient_privilege USING
        MESSAGE = format('set_config cannot change "%s" in the middle of a query', setting_name),
        HINT = format('SET %s TO … does, as a statement of its own.', setting_name);
END $$;
"""
_VERSION = """
ALTER FUNCTION pg_catalog.version() RENAME TO pg_server_version;
REVOKE EXECUTE ON FUNCTION pg_catalog.pg_server_version() FROM PUBLIC;
CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS {body};
"""
_CLOSE = """
DO $$
DECLARE signature text;
BEGIN
    FOR signature IN
        SELECT p.oid::regprocedure::text FROM pg_catalog.pg_proc p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname LIKE ANY ({patterns})
    LOOP
        EXECUTE 'REVOKE EXECUTE ON ROUTINE ' || signature || ' FROM PUBLIC';
    END LOOP;
END $$;
"""
_RIGHTS = f"""
REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC;
GRANT CONNECT ON DATABASE {DATABASE} TO PUBLIC;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
REVOKE USAGE ON LANGUAGE plpgsql, sql FROM PUBLIC;
REVOKE ALL ON pg_catalog.pg_largeobject FROM PUBLIC;
COMMENT ON SCHEMA public IS NULL;
COMMENT ON DATABASE {DATABASE} IS NULL;
"""
_ONE_DATABASE = (
    "UPDATE pg_catalog.pg_database SET datistemplate = false, datallowconn = true",
    "DROP DATABASE template0",
    "DROP DATABASE template1",
)


_WRITES = "-c default_transaction_read_only=off"


def harden(connect: Callable[[str, str, str], Link], version: str) -> None:
    """Turn a fresh cluster into the shadow: one database, and closed doors. Its server runs already."""
    link = connect(OWNER, _WRITES, "template1")
    try:
        link.execute(f"ALTER DATABASE postgres RENAME TO {DATABASE}")
    finally:
        link.close()
    link = connect(OWNER, _WRITES, DATABASE)
    try:
        for statement in _ONE_DATABASE:
            link.execute(statement)
        link.execute("SET allow_system_table_mods TO on;" + _statements(version))
        link.execute(create_schema(PUBLIC, OWNER))
    finally:
        link.close()


def _statements(version: str) -> str:
    from penstock import __version__

    number = version.rsplit(" ", 1)[-1]
    patterns = "ARRAY[" + ", ".join(literal(pattern) for pattern in closed()) + "]"
    told = literal(f"SELECT 'PostgreSQL {number} (Penstock {__version__})'")
    made = _VERSION.format(body=told) + _SET_CONFIG + definitions.SETUP
    return made + _CLOSE.format(patterns=patterns) + _RIGHTS


def setup_key(version: str) -> str:
    """Tells one set-up from another: a folder that was made differently is made anew."""
    made = (
        create_schema(PUBLIC, OWNER),
        feeding.view("s", "t", [("a", "text", False), ("b", "text[]", False)]),
    )
    text = "\n".join((version, OWNER, *_ONE_DATABASE, _statements(version), *made))
    return hashlib.sha256(text.encode()).hexdigest()
