//! The functions of UCX that rushmem uses: the one list from which the bindings are made
//! (`examples/generate.rs`) and by which a library is judged when it is loaded. Every one is in UCX 1.13 and,
//! under the same name, in 1.22.
//!
//! Left out on purpose, because they came after 1.13: `ucp_memh_pack` and `ucp_memh_buffer_release` (exported
//! memory handles, and remote keys that need no context), `ucp_rkey_compare`, `ucp_dt_query`,
//! `ucp_dt_make_sgl` and `ucp/api/device` (puts that a GPU starts). `ucp_rkey_buffer_release` and
//! `ucp_worker_get_address` are in 1.22's compatibility header: called old, still exported.

/// Names of the functions, in the order of a job's life.
pub const FUNCTIONS: &[&str] = &[
    // The library.
    "ucp_get_version",
    "ucp_get_version_string",
    "ucs_status_string",
    // A context and how it is configured. `ucp_init` is a static inline: `crate::ucp_init` stands in for it.
    "ucp_config_read",
    "ucp_config_modify",
    "ucp_config_release",
    "ucp_init_version",
    "ucp_context_query",
    "ucp_cleanup",
    // A worker: it owns the connections and makes progress.
    "ucp_worker_create",
    "ucp_worker_destroy",
    "ucp_worker_query",
    "ucp_worker_get_address",
    "ucp_worker_release_address",
    "ucp_worker_progress",
    "ucp_worker_get_efd",
    "ucp_worker_arm",
    "ucp_worker_wait",
    "ucp_worker_signal",
    "ucp_worker_flush_nbx",
    "ucp_worker_set_am_recv_handler",
    // Endpoints: one for each peer.
    "ucp_ep_create",
    "ucp_ep_query",
    "ucp_ep_print_info",
    "ucp_ep_flush_nbx",
    "ucp_ep_close_nbx",
    // Memory and the keys by which peers reach it.
    "ucp_mem_map",
    "ucp_mem_query",
    "ucp_mem_unmap",
    "ucp_rkey_pack",
    "ucp_rkey_buffer_release",
    "ucp_ep_rkey_unpack",
    "ucp_rkey_ptr",
    "ucp_rkey_destroy",
    // One-sided operations and active messages.
    "ucp_put_nbx",
    "ucp_get_nbx",
    "ucp_atomic_op_nbx",
    "ucp_am_send_nbx",
    "ucp_am_recv_data_nbx",
    "ucp_am_data_release",
    // What an operation in flight has come to.
    "ucp_request_check_status",
    "ucp_request_cancel",
    "ucp_request_free",
];
