//! Kernel arguments: Rust values in the form that a kernel takes, with their types, which a launch compares
//! with the kernel's parameters.

use std::any::TypeId;
use std::ffi::c_void;

use rushmem_abi::c::*;
use rushmem_abi::device::RawTeam;

use crate::heap::Registered;
use crate::signal::{Signal, SignalRef};
use crate::slice::{SymRef, SymSlice};
use crate::team::Team;
use crate::Symmetric;

/// The type of a kernel's argument or parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct ArgType(rushmem_arg_type_t);

impl ArgType {
    /// Nothing is known.
    pub const UNKNOWN: ArgType = ArgType::scalar(RUSHMEM_ARG_UNKNOWN, 0);

    const fn scalar(kind: i32, size: usize) -> ArgType {
        ArgType(rushmem_arg_type_t {
            kind,
            size: size as u32,
            pointee_kind: RUSHMEM_ARG_UNKNOWN,
            pointee_size: 0,
        })
    }

    /// A pointer to `T`. Of structs and arrays nothing is said: `[f32; 4]` may well be a `float *`.
    fn pointer_to<T: 'static>() -> ArgType {
        let (kind, size) = pointee::<T>().unwrap_or((RUSHMEM_ARG_UNKNOWN, 0));
        ArgType(rushmem_arg_type_t {
            kind: RUSHMEM_ARG_POINTER,
            size: size_of::<*mut T>() as u32,
            pointee_kind: kind,
            pointee_size: size,
        })
    }

    /// Whether it is a pointer.
    pub fn is_pointer(&self) -> bool {
        self.0.kind == RUSHMEM_ARG_POINTER
    }

    /// Its size in bytes; 0 where unknown.
    pub fn size(&self) -> usize {
        self.0.size as usize
    }

    /// The C ABI's form.
    pub fn raw(&self) -> rushmem_arg_type_t {
        self.0
    }
}

/// A value that a kernel can take.
///
/// # Safety
/// `Raw` is what the kernel's parameter holds, bit for bit, and [`ty`](KernelArg::ty) is its type.
pub unsafe trait KernelArg {
    /// The parameter's representation.
    type Raw: Copy;
    /// The parameter's type.
    fn ty(&self) -> ArgType;
    /// The parameter's value.
    fn raw(&self) -> Self::Raw;
}

/// Scalars: the trait, and what they are as pointees.
macro_rules! scalars {
    ($($type:ty = $kind:ident;)*) => {
        /// Kind and size of what a pointer points at, where that is a scalar.
        fn pointee<T: 'static>() -> Option<(i32, u32)> {
            let id = TypeId::of::<T>();
            $(if id == TypeId::of::<$type>() {
                return Some(($kind, size_of::<$type>() as u32));
            })*
            None
        }

        $(
            // SAFETY: passed as it is; the kind says what it is.
            unsafe impl KernelArg for $type {
                type Raw = $type;
                fn ty(&self) -> ArgType {
                    ArgType::scalar($kind, size_of::<$type>())
                }
                fn raw(&self) -> $type {
                    *self
                }
            }
        )*
    };
}

scalars! {
    i8 = RUSHMEM_ARG_INT;
    i16 = RUSHMEM_ARG_INT;
    i32 = RUSHMEM_ARG_INT;
    i64 = RUSHMEM_ARG_INT;
    isize = RUSHMEM_ARG_INT;
    u8 = RUSHMEM_ARG_UINT;
    u16 = RUSHMEM_ARG_UINT;
    u32 = RUSHMEM_ARG_UINT;
    u64 = RUSHMEM_ARG_UINT;
    usize = RUSHMEM_ARG_UINT;
    bool = RUSHMEM_ARG_UINT;
    f32 = RUSHMEM_ARG_FLOAT;
    f64 = RUSHMEM_ARG_FLOAT;
}

macro_rules! pointers {
    ($(impl[$($generics:tt)*] $type:ty => $pointee:ty, |$value:ident| $raw:expr;)*) => {
        $(
            // SAFETY: the kernel takes the address as a pointer to the element.
            unsafe impl<$($generics)*> KernelArg for $type {
                type Raw = *mut $pointee;
                fn ty(&self) -> ArgType {
                    ArgType::pointer_to::<$pointee>()
                }
                fn raw(&self) -> *mut $pointee {
                    let $value = self;
                    $raw
                }
            }
        )*
    };
}

pointers! {
    impl[T: Symmetric] &SymRef<'_, T> => T, |view| view.as_ptr();
    impl[T: Symmetric] &SymSlice<'_, T> => T, |slice| slice.as_ptr();
    impl[T: Symmetric] &Registered<'_, T> => T, |region| region.as_ptr();
    impl[] &SignalRef<'_> => u64, |signal| signal.as_ptr();
    impl[] &Signal<'_> => u64, |signal| signal.as_ptr();
    impl[T: 'static] *mut T => T, |pointer| *pointer;
    impl[T: 'static] *const T => T, |pointer| pointer.cast_mut();
}

/// A `#[repr(C)]` struct (or anything else that is plain data) passed by value. Only its size is checked.
#[derive(Debug, Clone, Copy)]
pub struct ByValue<T: Copy>(pub T);

// SAFETY: passed as it is; a struct is all that is said of it.
unsafe impl<T: Copy> KernelArg for ByValue<T> {
    type Raw = T;
    fn ty(&self) -> ArgType {
        ArgType::scalar(RUSHMEM_ARG_STRUCT, size_of::<T>())
    }
    fn raw(&self) -> T {
        self.0
    }
}

// SAFETY: `rushmem::team` of the device's headers holds a `rushmem_team` and nothing else.
unsafe impl KernelArg for &Team<'_> {
    type Raw = RawTeam;
    fn ty(&self) -> ArgType {
        ArgType::scalar(RUSHMEM_ARG_STRUCT, size_of::<RawTeam>())
    }
    fn raw(&self) -> RawTeam {
        self.device()
    }
}

mod sealed {
    pub trait Sealed {}
}

/// The arguments of a launch: a tuple of up to 16 [`KernelArg`]s, `()` for none.
pub trait KernelArgs: sealed::Sealed {
    #[doc(hidden)]
    fn with<R>(self, f: impl FnOnce(&[*const c_void], &[ArgType]) -> R) -> R;
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<$($name: KernelArg),*> sealed::Sealed for ($($name,)*) {}
        impl<$($name: KernelArg),*> KernelArgs for ($($name,)*) {
            #[allow(non_snake_case)] // the type parameters' names serve as the variables'
            fn with<R>(self, f: impl FnOnce(&[*const c_void], &[ArgType]) -> R) -> R {
                let ($($name,)*) = self;
                let types = [$($name.ty()),*];
                $(let $name = $name.raw();)*
                f(&[$(std::ptr::from_ref(&$name).cast::<c_void>()),*], &types)
            }
        }
    };
}

macro_rules! tuples_up_to {
    () => { tuples!(); };
    ($first:ident $($rest:ident)*) => {
        tuples!($first $($rest)*);
        tuples_up_to!($($rest)*);
    };
}

tuples_up_to!(A B C D E F G H I J K L M N O P);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_keep_their_bits_and_types() {
        #[derive(Clone, Copy)]
        #[repr(C)]
        struct Pair(u8, u32);
        let (mut word, big) = (7u64, u64::MAX - 1);
        let pointer: *mut u64 = &mut word;
        (big, -3i16, 1.5f32, true, pointer, ByValue(Pair(1, 2))).with(|values, types| {
            let kinds: Vec<_> = types.iter().map(|t| (t.raw().kind, t.raw().size)).collect();
            assert_eq!(
                kinds,
                [
                    (RUSHMEM_ARG_UINT, 8),
                    (RUSHMEM_ARG_INT, 2),
                    (RUSHMEM_ARG_FLOAT, 4),
                    (RUSHMEM_ARG_UINT, 1),
                    (RUSHMEM_ARG_POINTER, 8),
                    (RUSHMEM_ARG_STRUCT, 8)
                ]
            );
            assert_eq!((types[4].raw().pointee_kind, types[4].raw().pointee_size), (RUSHMEM_ARG_UINT, 8));
            // SAFETY: each value lives through the closure and has the type read here.
            unsafe {
                assert_eq!(*values[0].cast::<u64>(), big);
                assert_eq!(*values[1].cast::<i16>(), -3);
                assert_eq!(*values[2].cast::<f32>(), 1.5);
                assert!(*values[3].cast::<bool>());
                assert_eq!(*values[4].cast::<*mut u64>(), pointer);
                assert_eq!((*values[5].cast::<Pair>()).1, 2);
            }
        });
        ().with(|values, types| assert!(values.is_empty() && types.is_empty()));
    }

    #[test]
    fn structs_behind_pointers_are_left_open() {
        let raw = ArgType::pointer_to::<[f32; 4]>().raw();
        assert_eq!((raw.pointee_kind, raw.pointee_size), (RUSHMEM_ARG_UNKNOWN, 0));
        let raw = ArgType::pointer_to::<f32>().raw();
        assert_eq!((raw.pointee_kind, raw.pointee_size), (RUSHMEM_ARG_FLOAT, 4));
    }
}
