//! The C ABI as this crate sees it: tables of function pointers, filled from the loaded library.
//!
//! The package goes through the C ABI and not through the Rust API: types of elements and lifetimes of arrays
//! are known at run time here, and the C ABI checks both at run time.

use std::ffi::CStr;
use std::os::raw::{c_char, c_void};

use libloading::os::unix::Library;
use rushmem_abi::c::*;

macro_rules! table {
    ($name:ident: $($family:ident { $(fn $field:ident = $symbol:ident ( $($arg:ty),* $(,)? ) -> $ret:ty;)* })*) => {
        pub(crate) struct $name {
            $($(pub(crate) $field: unsafe extern "C" fn($($arg),*) -> $ret,)*)*
        }

        impl $name {
            /// The functions' addresses.
            fn all(&self) -> Vec<usize> {
                vec![$($(self.$field as usize,)*)*]
            }

            /// # Safety
            /// The library must be rushmem's, of this ABI version: a symbol's type is taken on trust.
            unsafe fn load(library: &Library) -> Result<$name, libloading::Error> {
                Ok($name {
                    // SAFETY: the caller vouches for the library; the runtime has checked the type.
                    $($($field: unsafe { *library.get(concat!(stringify!($symbol), "\0").as_bytes())? },)*)*
                })
            }
        }
    };
}

macro_rules! shared_table { ($($all:tt)*) => { table!(Shared: $($all)*); }; }
macro_rules! other_table { ($($all:tt)*) => { table!(Others: $($all)*); }; }
rushmem_abi::functions!(shared_table);
rushmem_abi::functions_for_c!(other_table);

/// The functions of `librushmem_host.so`.
pub(crate) struct Table {
    shared: Shared,
    /// Those that the Rust API has no use for.
    pub(crate) others: Others,
}

impl Table {
    /// # Safety
    /// The library must be rushmem's, of this ABI version.
    pub(crate) unsafe fn load(library: &Library) -> Result<Table, libloading::Error> {
        // SAFETY: the caller vouches for the library.
        unsafe { Ok(Table { shared: Shared::load(library)?, others: Others::load(library)? }) }
    }

    /// Whether each function has an address.
    pub(crate) fn is_whole(&self) -> bool {
        self.shared.all().into_iter().chain(self.others.all()).all(|address| address != 0)
    }
}

impl std::ops::Deref for Table {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// Copies a C string of the runtime; null becomes the empty string.
///
/// # Safety
/// `text` is null or a C string that lives through the call.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
