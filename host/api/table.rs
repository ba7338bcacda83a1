//! The C ABI as the Rust API sees it: one table of function pointers, filled from the loaded library.
//!
//! The functions and their types come from `rushmem-abi`, against which the runtime checks its own: an entry
//! there becomes the table's field and the look-up of the symbol. Every call goes to the one loaded library;
//! the crate that cargo links is there to have that library built: no code names it.

use std::os::raw::{c_char, c_void};

use rushmem_abi::c::*;

macro_rules! table {
    ($($family:ident { $(fn $field:ident = $symbol:ident ( $($arg:ty),* $(,)? ) -> $ret:ty;)* })*) => {
        /// The functions of `librushmem_host.so`.
        pub(crate) struct Table {
            $($(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> $ret,)*)*
        }

        impl Table {
            /// Looks every function up; the error names the first one missing.
            ///
            /// # Safety
            /// The library must be rushmem's, of this ABI version: a symbol's type is taken on trust.
            pub(crate) unsafe fn load(library: &libloading::os::unix::Library) -> Result<Table, libloading::Error> {
                Ok(Table {
                    // SAFETY: the caller vouches for the library; the runtime has checked the type.
                    $($($field: unsafe { *library.get(concat!(stringify!($symbol), "\0").as_bytes())? },)*)*
                })
            }
        }
    };
}

rushmem_abi::functions!(table);
