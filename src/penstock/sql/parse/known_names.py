"""Names that PostgreSQL and Spark know, and what each means to us.

Lists from the catalogs of PostgreSQL 18 and Spark 4.3, gone through by hand.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CATALOG_RELATIONS = _words(
    """
    pg_aggregate pg_aios pg_am pg_amop pg_amproc pg_attrdef pg_attribute pg_auth_members pg_authid
    pg_available_extension_versions pg_available_extensions pg_backend_memory_contexts pg_cast pg_class
    pg_collation pg_config pg_constraint pg_conversion pg_cursors pg_database pg_db_role_setting
    pg_default_acl pg_depend pg_description pg_enum pg_event_trigger pg_extension pg_file_settings
    pg_foreign_data_wrapper pg_foreign_server pg_foreign_table pg_group pg_hba_file_rules
    pg_ident_file_mappings pg_index pg_indexes pg_inherits pg_init_privs pg_language pg_largeobject
    pg_largeobject_metadata pg_locks pg_matviews pg_namespace pg_opclass pg_operator pg_opfamily
    pg_parameter_acl pg_partitioned_table pg_policies pg_policy pg_prepared_statements pg_prepared_xacts
    pg_proc pg_publication pg_publication_namespace pg_publication_rel pg_publication_tables pg_range
    pg_replication_origin pg_replication_origin_status pg_replication_slots pg_rewrite pg_roles pg_rules
    pg_seclabel pg_seclabels pg_sequence pg_sequences pg_settings pg_shadow pg_shdepend pg_shdescription
    pg_shmem_allocations pg_shmem_allocations_numa pg_shseclabel pg_stat_activity pg_stat_all_indexes
    pg_stat_all_tables pg_stat_archiver pg_stat_bgwriter pg_stat_checkpointer pg_stat_database
    pg_stat_database_conflicts pg_stat_gssapi pg_stat_io pg_stat_progress_analyze
    pg_stat_progress_basebackup pg_stat_progress_cluster pg_stat_progress_copy pg_stat_progress_create_index
    pg_stat_progress_vacuum pg_stat_recovery_prefetch pg_stat_replication pg_stat_replication_slots
    pg_stat_slru pg_stat_ssl pg_stat_subscription pg_stat_subscription_stats pg_stat_sys_indexes
    pg_stat_sys_tables pg_stat_user_functions pg_stat_user_indexes pg_stat_user_tables pg_stat_wal
    pg_stat_wal_receiver pg_stat_xact_all_tables pg_stat_xact_sys_tables pg_stat_xact_user_functions
    pg_stat_xact_user_tables pg_statio_all_indexes pg_statio_all_sequences pg_statio_all_tables
    pg_statio_sys_indexes pg_statio_sys_sequences pg_statio_sys_tables pg_statio_user_indexes
    pg_statio_user_sequences pg_statio_user_tables pg_statistic pg_statistic_ext pg_statistic_ext_data
    pg_stats pg_stats_ext pg_stats_ext_exprs pg_subscription pg_subscription_rel pg_tables pg_tablespace
    pg_timezone_abbrevs pg_timezone_names pg_transform pg_trigger pg_ts_config pg_ts_config_map pg_ts_dict
    pg_ts_parser pg_ts_template pg_type pg_user pg_user_mapping pg_user_mappings pg_views pg_wait_events
    """
)
"""The tables and views of pg_catalog, which need no qualification."""

SET_RETURNING = _words(
    """
    aclexplode generate_series generate_subscripts json_array_elements json_array_elements_text json_each
    json_each_text json_object_keys json_populate_recordset json_to_recordset jsonb_array_elements
    jsonb_array_elements_text jsonb_each jsonb_each_text jsonb_object_keys jsonb_path_query
    jsonb_path_query_tz jsonb_populate_recordset jsonb_to_recordset pg_available_extension_versions
    pg_available_extensions pg_available_wal_summaries pg_config pg_cursor pg_event_trigger_ddl_commands
    pg_event_trigger_dropped_objects pg_extension_update_paths pg_get_aios pg_get_backend_memory_contexts
    pg_get_catalog_foreign_keys pg_get_keywords pg_get_loaded_modules pg_get_multixact_members
    pg_get_publication_tables pg_get_replication_slots pg_get_shmem_allocations
    pg_get_shmem_allocations_numa pg_get_wait_events pg_get_wal_resource_managers pg_listening_channels
    pg_lock_status pg_mcv_list_items pg_options_to_table pg_partition_ancestors pg_partition_tree
    pg_prepared_statement pg_prepared_xact pg_show_all_settings pg_show_replication_origin_status
    pg_snapshot_xip pg_stat_get_activity pg_stat_get_backend_idset pg_stat_get_backend_io pg_stat_get_io
    pg_stat_get_progress_info pg_stat_get_recovery_prefetch pg_stat_get_slru pg_stat_get_subscription
    pg_stat_get_wal_senders pg_tablespace_databases pg_timezone_abbrevs_abbrevs pg_timezone_abbrevs_zone
    pg_timezone_names pg_wal_summary_contents regexp_matches regexp_split_to_table string_to_table ts_debug
    ts_parse ts_stat ts_token_type txid_snapshot_xip unnest
    """
)
"""Functions of PostgreSQL that give many rows for one call."""

SPARK_ONLY = _words(
    """
    add_months aes_decrypt aes_encrypt aggregate approx_count_distinct approx_percentile approx_top_k
    approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array_compact array_contains
    array_distinct array_except array_insert array_intersect array_join array_max array_min array_repeat
    array_size array_union arrays_overlap arrays_zip assert_true base64 bin bit_get bitmap_and_agg
    bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bround
    collation collations collect_list collect_set collect_union contains conv convert_timezone count_if
    count_min_sketch counter_diff csc curdate current_path current_timezone date_diff date_format
    date_from_unix_date date_sub dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear e
    element_at elt endswith equal_null explode explode_outer expm1 find_in_set first flatten forall
    format_number format_string from_avro from_base32 from_csv from_json from_protobuf from_unixtime
    from_utc_timestamp from_xml get get_json_object getbit grouping_id hash hex histogram_numeric
    hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hmac hour hypot if ifnull inline inline_outer
    input_file_block_length input_file_block_start input_file_name instr is_valid_utf8 is_valid_variant
    is_variant_null isnan isnotnull isnull jaro_winkler_similarity java_method json_tuple
    kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
    kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double
    kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
    kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float kurtosis last
    last_day lcase len levenshtein listagg locate log1p log2 luhn_check make_dt_interval make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries
    map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with mask max_by mean measure
    median min_by minute monotonically_increasing_id month monthname months_between named_struct nanvl
    negative next_day nullifzero nvl nvl2 parse_json parse_url percentile percentile_approx pmod posexplode
    posexplode_outer positive printf python_worker_logs quarter quote raise_error rand randn randstr range
    reduce reflect regexp regexp_extract regexp_extract_all rint rlike schema_of_avro schema_of_csv
    schema_of_json schema_of_variant schema_of_variant_agg schema_of_xml sec second sentences sequence
    session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned shuffle signum size skewness slice
    sort_array soundex space spark_partition_id split sql_keywords st_asbinary st_geogfromwkb st_geomfromwkb
    st_setsrid st_srid stack startswith std str_to_map struct substring_index theta_difference
    theta_intersection theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union
    theta_union_agg time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
    time_to_millis time_to_seconds time_trunc timestamp_micros timestamp_millis timestamp_nanos
    timestamp_seconds to_avro to_base32 to_binary to_csv to_protobuf to_time to_timestamp_ltz
    to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform
    transform_keys transform_values try_add try_aes_decrypt try_avg try_divide try_element_at
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply
    try_parse_json try_parse_url try_reflect try_subtract try_sum try_to_binary try_to_date try_to_number
    try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_array_append try_variant_get
    try_variant_insert try_variant_set tuple_difference_double tuple_difference_integer
    tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_intersection_double tuple_intersection_integer
    tuple_intersection_theta_double tuple_intersection_theta_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
    tuple_sketch_theta_integer tuple_union_agg_double tuple_union_agg_integer tuple_union_double
    tuple_union_integer tuple_union_theta_double tuple_union_theta_integer typeof ucase unbase64 unhex
    uniform unix_date unix_micros unix_millis unix_nanos unix_seconds unix_timestamp url_decode url_encode
    uuid validate_utf8 variant_array_append variant_delete variant_explode variant_explode_outer variant_get
    variant_insert variant_set variant_strip_nulls vector_avg vector_cosine_similarity vector_inner_product
    vector_l2_distance vector_norm vector_normalize vector_sum weekday weekofyear window window_time
    xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
    xxhash64 year zeroifnull zip_with
    """
)
"""Functions that Spark has and PostgreSQL has not."""

SPARK_AGGREGATES = _words(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k array_agg avg bit_and bit_or bit_xor
    bool_and bool_or collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every
    first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg kurtosis last
    last_value listagg max max_by mean median min min_by mode percentile percentile_approx percentile_cont
    percentile_disc regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop var_samp variance
    bitmap_and_agg bitmap_construct_agg bitmap_or_agg schema_of_variant_agg vector_avg vector_sum
    """
)
"""Functions of Spark that make one row of many."""

SPARK_DENIED = _words(
    """
    reflect reflect2 java_method try_reflect in_file read_files read_file read_kafka read_kinesis
    read_pubsub read_pulsar read_state_metadata read_statestore cloud_files cloud_files_state http_request
    secret try_secret list_secrets remote_query input_file_name input_file_block_start
    input_file_block_length from_avro to_avro schema_of_avro from_protobuf to_protobuf python_worker_logs
    identifier ai_query event_log
    """
)
"""Functions of Spark, and of what is built on it, that call Java, read files or hosts, or tell paths."""

POSTGRES_DENIED = _words(
    """
    setval nextval currval lastval query_to_xml query_to_xmlschema query_to_xml_and_xmlschema
    cursor_to_xml cursor_to_xmlschema table_to_xml table_to_xmlschema table_to_xml_and_xmlschema
    schema_to_xml schema_to_xmlschema schema_to_xml_and_xmlschema database_to_xml database_to_xmlschema
    database_to_xml_and_xmlschema ts_stat ts_rewrite loread lowrite pg_stat_file pg_terminate_backend
    pg_cancel_backend pg_reload_conf pg_rotate_logfile pg_promote pg_switch_wal pg_notify pg_export_snapshot
    pg_config pg_current_logfile pg_hba_file_rules pg_ident_file_mappings pg_show_all_file_settings
    pg_extension_config_dump pg_import_system_collations pg_nextoid pg_sync_replication_slots pg_prewarm
    pg_stop_making_pinned_objects crosstab connectby xpath_table copy_from
    pg_log_backend_memory_contexts pg_log_standby_snapshot gin_clean_pending_list setseed
    """
)
"""Functions of PostgreSQL that read files, run text as a query, or change the server or others' sessions."""

FORMATS = _words(
    """
    parquet csv json text orc avro xml binaryfile image libsvm delta iceberg hudi jdbc kafka socket rate
    rate-micro-batch hive arrow statestore state-metadata cloudfiles deltasharing noop console memory
    foreachbatch excel protobuf python files file path
    """
)
"""First parts of names that Spark takes for a format, and what follows for a path."""

TABLE_FUNCTIONS = _words(
    """
    range explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple
    variant_explode variant_explode_outer collations sql_keywords generate_series generate_subscripts unnest
    checkpoint json_array_elements json_array_elements_text json_each json_each_text json_object_keys
    json_populate_recordset json_populate_record json_to_recordset json_to_record jsonb_array_elements
    jsonb_array_elements_text jsonb_each jsonb_each_text jsonb_object_keys jsonb_path_query
    jsonb_populate_recordset jsonb_populate_record jsonb_to_recordset jsonb_to_record regexp_matches
    regexp_split_to_table string_to_table aclexplode pg_get_keywords pg_options_to_table
    pg_show_all_settings pg_timezone_names pg_timezone_abbrevs_abbrevs pg_timezone_abbrevs_zone
    pg_partition_tree pg_partition_ancestors pg_lock_status pg_prepared_statement pg_cursor
    pg_get_publication_tables pg_listening_channels pg_stat_get_activity pg_available_extensions
    pg_tablespace_databases pg_available_extension_versions pg_extension_update_paths
    pg_get_catalog_foreign_keys pg_get_replication_slots pg_sequence_parameters pg_get_object_address
    pg_identify_object pg_identify_object_as_address pg_stat_get_io pg_stat_get_wal_senders
    pg_stat_get_progress_info pg_stat_get_subscription pg_blocking_pids pg_input_error_info _pg_expandarray
    ts_parse ts_token_type ts_debug current_schemas current_date current_timestamp current_user
    current_database current_schema session_user version now string_to_array array pg_sleep
    pg_my_temp_schema pg_postmaster_start_time pg_mcv_list_items pg_prepared_xact
    """
)
"""What may stand where a table does. The shadow catalog answers those of PostgreSQL that Spark lacks."""

HINTS = _words(
    """
    broadcast broadcastjoin mapjoin merge shuffle_merge mergejoin shuffle_hash shuffle_replicate_nl coalesce
    repartition repartition_by_range rebalance skew
    """
)
"""Hints about joins and partitions, which change how long a query takes and not what it gives."""

DENIED_PREFIXES = (
    "pg_read_",
    "pg_ls_",
    "lo_",
    "dblink",
    "postgres_fdw",
    "pg_advisory_lock",
    "pg_advisory_xact",
    "pg_try_advisory_",
    "pg_logical_",
    "pg_replication_",
    "pg_create_",
    "pg_drop_",
    "pg_copy_",
    "pg_backup_",
    "pg_wal_",
    "pg_file_",
    "pg_stat_reset",
    "pg_clear_",
    "pg_restore_",
    "pg_control_",
    "pg_get_wal",
    "binary_upgrade_",
    "brin_",
    "plpgsql_",
    "pg_logdir",
)

NOT_PLAIN = _words(
    """
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean
    both case cast char character check coalesce collate collation column concurrently constraint create
    cross current_catalog current_date current_role current_schema current_time current_timestamp
    current_user dec decimal default deferrable desc distinct do else end except exists extract false
    fetch float for foreign freeze from full grant greatest group grouping having ilike in initially
    inner inout int integer intersect interval into is isnull join lateral leading least left like limit
    localtime localtimestamp national natural nchar none normalize not notnull null nullif numeric
    offset on only or order out outer overlaps overlay placing position precision primary real
    references returning right row select session_user setof similar smallint some substring symmetric
    table tablesample then time timestamp to trailing treat trim true union unique user using values
    varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists
    xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
    """
)
"""Words that PostgreSQL quotes where they are names: all its keywords but those that it calls unreserved."""
