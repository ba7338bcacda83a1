//! Every function of the C ABI with its type, by family: a family is a file of `capi/` in the runtime.
//!
//! Lists for macros. The runtime checks its functions against them, and clients make their tables of function
//! pointers of them, so that neither needs the other. A test of `rushmem.h` says that none is missing.

/// Calls the macro `$with` with the functions that the Rust API calls, too:
/// `family { fn name = rushmem_name(types) -> type; ... } ...`. `name` is what a field of a table may be
/// called. [`c`](crate::c), `c_char` and `c_void` have to be in scope.
#[macro_export]
macro_rules! functions {
    ($with:ident) => {
        $crate::collectives! { $crate::functions, $with }
    };
    ([$with:ident] $(
        $kind:ident $name:ident $variant:ident ($dst:ident <- $src:ident) {
            device $header:literal $device:literal;
            $(#[$host_doc:meta])*
            host $host:ident = $host_symbol:ident($($host_arg:ident: $host_type:ty),*);
            $(#[$stream_doc:meta])*
            stream $stream:ident = $stream_symbol:ident($($stream_arg:ident: $stream_type:ty),*);
        }
    )*) => {
        $with! {
            info {
                fn library_path = rushmem_library_path() -> *const c_char;
                fn library_version = rushmem_version() -> *const c_char;
                fn last_error = rushmem_last_error() -> *const c_char;
            }
            world {
                fn uid_create = rushmem_uid_create(*mut rushmem_uid_t) -> i32;
                fn init = rushmem_init(*const rushmem_init_attr_t, *mut *mut rushmem_world_t) -> i32;
                fn finalize = rushmem_finalize(*mut rushmem_world_t) -> i32;
                fn abort = rushmem_abort(*mut rushmem_world_t, *const c_char) -> i32;
                fn leave = rushmem_leave(*mut rushmem_world_t, *const c_char) -> i32;
                fn check = rushmem_check(*mut rushmem_world_t) -> i32;
                fn view = rushmem_view(*mut rushmem_world_t, *mut rushmem_view_t) -> i32;
                fn near = rushmem_near(*mut rushmem_world_t, *mut rushmem_near_t) -> i32;
                fn peer = rushmem_peer(*mut rushmem_world_t, i32, *mut rushmem_peer_t) -> i32;
                fn counters = rushmem_counters(*mut rushmem_world_t, i32, *mut rushmem_counters_t) -> i32;
                fn device_name = rushmem_device_name(*mut rushmem_world_t, *mut *const c_char) -> i32;
            }
            heap {
                fn alloc = rushmem_alloc(*mut rushmem_world_t, usize, usize, *mut *mut c_void) -> i32;
                fn free = rushmem_free(*mut rushmem_world_t, *mut c_void) -> i32;
                fn register = rushmem_register(
                    *mut rushmem_world_t, *mut c_void, usize, *mut *mut c_void,
                ) -> i32;
                fn unregister = rushmem_unregister(*mut rushmem_world_t, *mut c_void) -> i32;
                fn ptr = rushmem_ptr(*mut rushmem_world_t, *const c_void, i32, *mut *mut c_void) -> i32;
                fn heap_info = rushmem_heap_info(*mut rushmem_world_t, *mut rushmem_heap_info_t) -> i32;
            }
            rma {
                fn put = rushmem_put(*mut rushmem_world_t, *mut c_void, *const c_void, usize, i32) -> i32;
                fn put_nbi = rushmem_put_nbi(
                    *mut rushmem_world_t, *mut c_void, *const c_void, usize, i32,
                ) -> i32;
                fn put_on_stream = rushmem_put_on_stream(
                    *mut rushmem_world_t, *mut c_void, *const c_void, usize, i32, *mut c_void,
                ) -> i32;
                fn get = rushmem_get(*mut rushmem_world_t, *mut c_void, *const c_void, usize, i32) -> i32;
                fn get_nbi = rushmem_get_nbi(
                    *mut rushmem_world_t, *mut c_void, *const c_void, usize, i32,
                ) -> i32;
                fn get_on_stream = rushmem_get_on_stream(
                    *mut rushmem_world_t, *mut c_void, *const c_void, usize, i32, *mut c_void,
                ) -> i32;
                fn p_on_stream = rushmem_p_on_stream(
                    *mut rushmem_world_t, *mut c_void, u64, usize, i32, *mut c_void,
                ) -> i32;
            }
            strided {
                fn iput = rushmem_iput(
                    *mut rushmem_world_t, *mut c_void, *const c_void, isize, isize, usize, usize, i32,
                ) -> i32;
                fn iput_on_stream =
                    rushmem_iput_on_stream(
                        *mut rushmem_world_t, *mut c_void, *const c_void, isize, isize, usize, usize, i32,
                        *mut c_void,
                    ) -> i32;
                fn iput_signal = rushmem_iput_signal(
                    *mut rushmem_world_t, *mut c_void, *const c_void, isize, isize, usize, usize, *mut u64,
                    u64, i32, i32,
                ) -> i32;
                fn iput_signal_on_stream = rushmem_iput_signal_on_stream(
                    *mut rushmem_world_t, *mut c_void, *const c_void, isize, isize, usize, usize, *mut u64,
                    u64, i32, i32, *mut c_void,
                ) -> i32;
                fn iget = rushmem_iget(
                    *mut rushmem_world_t, *mut c_void, *const c_void, isize, isize, usize, usize, i32,
                ) -> i32;
                fn iget_on_stream =
                    rushmem_iget_on_stream(
                        *mut rushmem_world_t, *mut c_void, *const c_void, isize, isize, usize, usize, i32,
                        *mut c_void,
                    ) -> i32;
            }
            atomic {
                fn atomic = rushmem_atomic(
                    *mut rushmem_world_t, i32, i32, *mut c_void, u64, u64, i32, *mut u64,
                ) -> i32;
            }
            signal {
                fn put_signal = rushmem_put_signal(
                    *mut rushmem_world_t, *mut c_void, *const c_void, usize, *mut u64, u64, i32, i32,
                ) -> i32;
                fn put_signal_nbi = rushmem_put_signal_nbi(
                    *mut rushmem_world_t, *mut c_void, *const c_void, usize, *mut u64, u64, i32, i32,
                ) -> i32;
                fn put_signal_on_stream =
                    rushmem_put_signal_on_stream(
                        *mut rushmem_world_t, *mut c_void, *const c_void, usize, *mut u64, u64, i32, i32,
                        *mut c_void,
                    ) -> i32;
                fn signal_op = rushmem_signal_op(*mut rushmem_world_t, *mut u64, u64, i32, i32) -> i32;
                fn signal_op_on_stream = rushmem_signal_op_on_stream(
                    *mut rushmem_world_t, *mut u64, u64, i32, i32, *mut c_void,
                ) -> i32;
                fn signal_wait_until = rushmem_signal_wait_until(
                    *mut rushmem_world_t, *const u64, i32, u64, *mut u64,
                ) -> i32;
                fn signal_wait_until_on_stream = rushmem_signal_wait_until_on_stream(
                    *mut rushmem_world_t, *const u64, i32, u64, *mut c_void,
                ) -> i32;
            }
            wait {
                fn wait_until = rushmem_wait_until(
                    *mut rushmem_world_t, i32, *const c_void, i32, u64, u64,
                ) -> i32;
                fn wait_until_on_stream = rushmem_wait_until_on_stream(
                    *mut rushmem_world_t, i32, *const c_void, i32, u64, *mut c_void,
                ) -> i32;
                fn wait_until_all = rushmem_wait_until_all(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, u64, u64,
                ) -> i32;
                fn wait_until_any = rushmem_wait_until_any(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, u64, u64, *mut usize,
                ) -> i32;
                fn wait_until_some = rushmem_wait_until_some(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, u64, u64, *mut usize,
                    *mut usize,
                ) -> i32;
                fn wait_until_all_vector = rushmem_wait_until_all_vector(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, *const c_void, u64,
                ) -> i32;
                fn wait_until_any_vector = rushmem_wait_until_any_vector(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, *const c_void, u64,
                    *mut usize,
                ) -> i32;
                fn wait_until_some_vector = rushmem_wait_until_some_vector(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, *const c_void, u64,
                    *mut usize, *mut usize,
                ) -> i32;
            }
            test {
                fn test_all = rushmem_test_all(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, u64, *mut i32,
                ) -> i32;
                fn test_any = rushmem_test_any(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, u64, *mut usize,
                ) -> i32;
                fn test_some = rushmem_test_some(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, u64, *mut usize,
                    *mut usize,
                ) -> i32;
                fn test_all_vector = rushmem_test_all_vector(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, *const c_void,
                    *mut i32,
                ) -> i32;
                fn test_any_vector = rushmem_test_any_vector(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, *const c_void,
                    *mut usize,
                ) -> i32;
                fn test_some_vector = rushmem_test_some_vector(
                    *mut rushmem_world_t, i32, *const c_void, usize, *const i32, i32, *const c_void,
                    *mut usize, *mut usize,
                ) -> i32;
            }
            context {
                fn context_create = rushmem_context_create(*mut rushmem_world_t, *mut u64) -> i32;
                fn context_enter = rushmem_context_enter(*mut rushmem_world_t, u64) -> i32;
                fn context_fence = rushmem_context_fence(*mut rushmem_world_t, u64) -> i32;
                fn context_quiet = rushmem_context_quiet(*mut rushmem_world_t, u64) -> i32;
                fn context_destroy = rushmem_context_destroy(*mut rushmem_world_t, u64) -> i32;
            }
            order {
                fn fence = rushmem_fence(*mut rushmem_world_t) -> i32;
                fn fence_on_stream = rushmem_fence_on_stream(*mut rushmem_world_t, *mut c_void) -> i32;
                fn quiet = rushmem_quiet(*mut rushmem_world_t) -> i32;
                fn quiet_on_stream = rushmem_quiet_on_stream(*mut rushmem_world_t, *mut c_void) -> i32;
                fn sync_all = rushmem_sync_all(*mut rushmem_world_t) -> i32;
                fn sync_all_on_stream = rushmem_sync_all_on_stream(*mut rushmem_world_t, *mut c_void) -> i32;
                fn barrier_all = rushmem_barrier_all(*mut rushmem_world_t) -> i32;
                fn barrier_all_on_stream = rushmem_barrier_all_on_stream(
                    *mut rushmem_world_t, *mut c_void,
                ) -> i32;
            }
            team {
                fn team_world = rushmem_team_world(*mut rushmem_world_t, *mut *mut rushmem_team_t) -> i32;
                fn team_node = rushmem_team_node(
                    *mut rushmem_world_t, *const rushmem_team_config_t, *mut *mut rushmem_team_t,
                ) -> i32;
                fn team_split_strided = rushmem_team_split_strided(
                    *mut rushmem_team_t, i32, i32, i32, *const rushmem_team_config_t,
                    *mut *mut rushmem_team_t,
                ) -> i32;
                fn team_split_2d = rushmem_team_split_2d(
                    *mut rushmem_team_t, i32, *const rushmem_team_config_t, *mut *mut rushmem_team_t,
                    *mut *mut rushmem_team_t,
                ) -> i32;
                fn team_split = rushmem_team_split(
                    *mut rushmem_team_t, i64, i32, *const rushmem_team_config_t, *mut *mut rushmem_team_t,
                ) -> i32;
                fn team_split_list = rushmem_team_split_list(
                    *mut rushmem_team_t, *const i32, usize, *const rushmem_team_config_t,
                    *mut *mut rushmem_team_t,
                ) -> i32;
                fn team_info = rushmem_team_info(*mut rushmem_team_t, *mut rushmem_team_info_t) -> i32;
                fn team_device = rushmem_team_device(*mut rushmem_team_t, *mut rushmem_team) -> i32;
                fn team_compare = rushmem_team_compare(
                    *mut rushmem_team_t, *mut rushmem_team_t, *mut i32,
                ) -> i32;
                fn team_translate_pe = rushmem_team_translate_pe(
                    *mut rushmem_team_t, i32, *mut rushmem_team_t, *mut i32,
                ) -> i32;
                fn team_free = rushmem_team_free(*mut rushmem_team_t) -> i32;
            }
            team_stream {
                fn team_prepare = rushmem_team_prepare(
                    *mut rushmem_team_t, *const c_char, usize, i32,
                ) -> i32;
                $(fn $stream = $stream_symbol(
                    *mut rushmem_team_t, $($stream_type,)* u32, *mut c_void,
                ) -> i32;)*
            }
            collective {
                $(fn $host = $host_symbol(*mut rushmem_team_t, $($host_type,)*) -> i32;)*
            }
            kernel {
                fn module_load = rushmem_module_load(
                    *mut rushmem_world_t, *const c_char, usize, *const c_char, *const *const c_char, usize,
                    *mut *mut rushmem_module_t,
                ) -> i32;
                fn module_load_binary =
                    rushmem_module_load_binary(
                        *mut rushmem_world_t, *const c_void, usize, *const c_char,
                        *mut *mut rushmem_module_t,
                    ) -> i32;
                fn module_unload = rushmem_module_unload(*mut rushmem_module_t) -> i32;
                fn module_kernel = rushmem_module_kernel(
                    *mut rushmem_module_t, *const c_char, *mut *mut rushmem_kernel_t,
                ) -> i32;
                fn module_kernel_names = rushmem_module_kernel_names(
                    *mut rushmem_module_t, usize, *mut *const c_char,
                ) -> i32;
                fn kernel_params = rushmem_kernel_params(
                    *mut rushmem_kernel_t, *mut rushmem_arg_type_t, usize, *mut usize,
                ) -> i32;
                fn kernel_max_blocks = rushmem_kernel_max_blocks(
                    *mut rushmem_kernel_t, *const u32, usize, *mut u64,
                ) -> i32;
                fn launch = rushmem_launch(
                    *mut rushmem_kernel_t, *const rushmem_launch_t, *const *const c_void,
                    *const rushmem_arg_type_t, usize,
                ) -> i32;
                fn synchronize = rushmem_synchronize(*mut rushmem_world_t) -> i32;
            }
            stream {
                fn stream_create = rushmem_stream_create(*mut rushmem_world_t, *mut *mut c_void) -> i32;
                fn stream_destroy = rushmem_stream_destroy(*mut rushmem_world_t, *mut c_void) -> i32;
                fn stream_default = rushmem_stream_default(*mut rushmem_world_t, *mut *mut c_void) -> i32;
                fn stream_pool = rushmem_stream_pool(*mut rushmem_world_t, *mut *mut c_void) -> i32;
                fn stream_synchronize = rushmem_stream_synchronize(*mut rushmem_world_t, *mut c_void) -> i32;
                fn event_record = rushmem_event_record(
                    *mut rushmem_world_t, *mut c_void, *mut *mut rushmem_event_t,
                ) -> i32;
                fn event_test = rushmem_event_test(*mut rushmem_event_t, *mut i32) -> i32;
                fn event_wait = rushmem_event_wait(*mut rushmem_event_t) -> i32;
                fn event_free = rushmem_event_free(*mut rushmem_event_t) -> i32;
            }
            gpu {
                fn gpu_count = rushmem_gpu_count(*mut i32) -> i32;
                fn gpu_info = rushmem_gpu_info(i32, *mut rushmem_gpu_t) -> i32;
                fn gpu_can_access = rushmem_gpu_can_access(i32, i32, *mut i32) -> i32;
                fn cuda_versions = rushmem_cuda_versions(*mut rushmem_cuda_t) -> i32;
            }
            doctor {
                fn job_describe = rushmem_job_describe(*mut rushmem_job_t) -> i32;
                fn cpu_compiler = rushmem_cpu_compiler(*mut rushmem_tool_t) -> i32;
                fn network = rushmem_network(*mut rushmem_tool_t) -> i32;
                fn network_card = rushmem_network_card(usize, *mut *const c_char) -> i32;
                fn mpi_plugin = rushmem_mpi_plugin(usize, *mut *const c_char) -> i32;
                fn collective_launch = rushmem_collective_launch(
                    usize, i32, *mut rushmem_collective_launch_t,
                ) -> i32;
            }
        }
    };
}

/// The rest: what only other languages call, as the Rust API has it in another form, asks before it has its
/// table, or has no use for it.
#[macro_export]
macro_rules! functions_for_c {
    ($with:ident) => {
        $with! {
            info {
                fn abi_version = rushmem_abi_version() -> u32;
                fn error_name = rushmem_error_name(i32) -> *const c_char;
            }
            world {
                fn break_job = rushmem_break(*mut rushmem_world_t, *const c_char) -> i32;
                fn current = rushmem_current(*mut *mut rushmem_world_t) -> i32;
                fn my_pe = rushmem_my_pe(*mut rushmem_world_t) -> i32;
                fn n_pes = rushmem_n_pes(*mut rushmem_world_t) -> i32;
                fn on_wait = rushmem_on_wait(Option<unsafe extern "C" fn() -> i32>) -> i32;
            }
            heap {
                fn memory_keep = rushmem_memory_keep(*mut rushmem_world_t, *mut *mut rushmem_memory_t) -> i32;
                fn memory_drop = rushmem_memory_drop(*mut rushmem_memory_t) -> i32;
            }
            team {
                fn team_host = rushmem_team_host(
                    *mut rushmem_world_t, *const rushmem_team_config_t, *mut *mut rushmem_team_t,
                ) -> i32;
                fn team_number = rushmem_team_number(*mut rushmem_world_t, i32, *mut rushmem_team_t) -> i32;
                fn team_meet = rushmem_team_meet(
                    *mut rushmem_world_t, *const i32, usize, u64, *const rushmem_team_config_t,
                    *mut *mut rushmem_team_t,
                ) -> i32;
                fn team_my_pe = rushmem_team_my_pe(*mut rushmem_team_t) -> i32;
                fn team_n_pes = rushmem_team_n_pes(*mut rushmem_team_t) -> i32;
            }
            collective {
                fn team_least = rushmem_team_least(*mut rushmem_team_t, i64, *mut i64) -> i32;
            }
            rma {
                fn p = rushmem_p(*mut rushmem_world_t, *mut c_void, u64, usize, i32) -> i32;
                fn g = rushmem_g(*mut rushmem_world_t, *const c_void, *mut u64, usize, i32) -> i32;
            }
            kernel {
                fn kernel_state = rushmem_kernel_state(*mut rushmem_world_t, *mut c_void, usize) -> i32;
                fn kernel_state_tell = rushmem_kernel_state_tell(
                    *mut rushmem_world_t, *mut c_void, *mut i32,
                ) -> i32;
            }
            signal {
                fn signal_fetch = rushmem_signal_fetch(*mut rushmem_world_t, *const u64, *mut u64) -> i32;
            }
            test {
                fn test = rushmem_test(
                    *mut rushmem_world_t, i32, *const c_void, i32, u64, *mut i32,
                ) -> i32;
            }
        }
    };
}
