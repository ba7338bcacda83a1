//! Arguments against parameters. What is checked is what would corrupt: number, size, and the kinds whose
//! bits mean different things (integers, floating point, pointers). Signed for unsigned passes, as it would
//! in a C++ call, and so does a struct for anything of its size; what is unknown on either side passes.

use crate::error::{err, Result};
use rushmem_abi::c::*;

/// Compares a launch's arguments with the kernel's parameters.
pub(crate) fn check(
    kernel: &str,
    params: &[rushmem_arg_type_t],
    count: usize,
    types: Option<&[rushmem_arg_type_t]>,
) -> Result<()> {
    if count != params.len() {
        let plural = if params.len() == 1 { "" } else { "s" };
        return Err(err!(LAUNCH, "kernel `{kernel}` takes {} argument{plural}, got {count}", params.len()));
    }
    for (i, (param, given)) in params.iter().zip(types.unwrap_or_default()).enumerate() {
        if !fits(param, given) {
            let (param, given) = (name(param), name(given));
            return Err(err!(LAUNCH, "argument {i} of `{kernel}`: the kernel takes {param}, got {given}"));
        }
    }
    Ok(())
}

fn fits(param: &rushmem_arg_type_t, given: &rushmem_arg_type_t) -> bool {
    if !alike(param.kind, param.size, given.kind, given.size) {
        return false;
    }
    param.kind != RUSHMEM_ARG_POINTER
        || given.kind != RUSHMEM_ARG_POINTER
        || param.pointee_kind == RUSHMEM_ARG_UNKNOWN
        || alike(param.pointee_kind, param.pointee_size, given.pointee_kind, given.pointee_size)
}

fn alike(param: i32, param_size: u32, given: i32, given_size: u32) -> bool {
    if param == RUSHMEM_ARG_UNKNOWN || given == RUSHMEM_ARG_UNKNOWN {
        return param_size == 0 || given_size == 0 || param_size == given_size;
    }
    let class = |kind| if kind == RUSHMEM_ARG_UINT { RUSHMEM_ARG_INT } else { kind };
    param_size == given_size && (given == RUSHMEM_ARG_STRUCT || class(param) == class(given))
}

/// `int32_t (4 bytes)`, `double * (8 bytes)`.
fn name(ty: &rushmem_arg_type_t) -> String {
    match ty.kind {
        RUSHMEM_ARG_POINTER => format!("{} * ({} bytes)", scalar(ty.pointee_kind, ty.pointee_size), ty.size),
        kind => {
            format!("{} ({} byte{})", scalar(kind, ty.size), ty.size, if ty.size == 1 { "" } else { "s" })
        }
    }
}

fn scalar(kind: i32, size: u32) -> String {
    match (kind, size) {
        (RUSHMEM_ARG_INT, _) => format!("int{}_t", 8 * size),
        (RUSHMEM_ARG_UINT, _) => format!("uint{}_t", 8 * size),
        (RUSHMEM_ARG_FLOAT, 4) => "float".into(),
        (RUSHMEM_ARG_FLOAT, 8) => "double".into(),
        (RUSHMEM_ARG_FLOAT, _) => "a floating-point number".into(),
        (RUSHMEM_ARG_POINTER, _) => "a pointer".into(),
        (RUSHMEM_ARG_STRUCT, _) => "a struct".into(),
        (_, 0) => "void".into(),
        _ => "something".into(),
    }
}

/// Copies of argument values, each aligned for any type that a kernel may take.
pub(crate) struct Copied {
    lines: Vec<ArgLine>,
    at: Vec<usize>,
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct ArgLine([u8; 64]);

impl Copied {
    /// # Safety
    /// Each of `values` points at a value of the corresponding parameter's size.
    pub(crate) unsafe fn of(
        kernel: &str,
        params: &[rushmem_arg_type_t],
        values: &[*const std::ffi::c_void],
    ) -> Result<Self> {
        let mut copied = Copied { lines: Vec::new(), at: Vec::new() };
        for (i, (param, value)) in params.iter().zip(values).enumerate() {
            if value.is_null() {
                return Err(err!(
                    INVALID_ARGUMENT,
                    "argument {i} of `{kernel}`: the pointer to its value is null"
                ));
            }
            let (size, first) = (param.size as usize, copied.lines.len());
            copied.lines.resize(first + size.div_ceil(size_of::<ArgLine>()), ArgLine([0; 64]));
            // SAFETY: per contract, and the lines just added hold `size` bytes.
            unsafe {
                let to = copied.lines.as_mut_ptr().add(first);
                std::ptr::copy_nonoverlapping(value.cast::<u8>(), to.cast(), size);
            }
            copied.at.push(first);
        }
        Ok(copied)
    }

    /// Pointers to the copies.
    pub(crate) fn pointers(&self) -> Vec<*const std::ffi::c_void> {
        self.at.iter().map(|first| self.lines[*first..].as_ptr().cast()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;

    fn plain(kind: i32, size: u32) -> rushmem_arg_type_t {
        rushmem_arg_type_t { kind, size, pointee_kind: RUSHMEM_ARG_UNKNOWN, pointee_size: 0 }
    }

    fn pointer(pointee_kind: i32, pointee_size: u32) -> rushmem_arg_type_t {
        rushmem_arg_type_t { kind: RUSHMEM_ARG_POINTER, size: 8, pointee_kind, pointee_size }
    }

    #[test]
    fn what_fits_and_what_does_not() {
        use RUSHMEM_ARG_FLOAT as F;
        use RUSHMEM_ARG_INT as I;
        use RUSHMEM_ARG_STRUCT as S;
        use RUSHMEM_ARG_UINT as U;
        use RUSHMEM_ARG_UNKNOWN as X;
        for (param, given) in [
            (plain(I, 4), plain(I, 4)),
            (plain(I, 4), plain(U, 4)),
            (plain(S, 16), plain(S, 16)),
            (plain(U, 8), plain(S, 8)),
            (plain(F, 4), plain(X, 0)),
            (plain(X, 4), plain(F, 4)),
            (pointer(F, 4), pointer(F, 4)),
            (pointer(X, 0), pointer(F, 4)),
            (pointer(F, 4), pointer(X, 0)),
            (pointer(X, 16), pointer(F, 4)),
            (pointer(U, 8), pointer(I, 8)),
        ] {
            assert!(fits(&param, &given), "{param:?} {given:?}");
        }
        for (param, given) in [
            (plain(I, 4), plain(I, 8)),
            (plain(I, 4), plain(F, 4)),
            (plain(U, 8), pointer(U, 8)),
            (pointer(U, 8), plain(U, 8)),
            (plain(S, 16), plain(S, 8)),
            (plain(S, 8), plain(F, 8)),
            (pointer(F, 4), pointer(F, 8)),
            (pointer(F, 4), pointer(I, 4)),
        ] {
            assert!(!fits(&param, &given), "{param:?} {given:?}");
        }
    }

    #[test]
    fn texts_name_the_argument_and_the_types() {
        let params = [pointer(RUSHMEM_ARG_FLOAT, 8), plain(RUSHMEM_ARG_INT, 4)];
        let e = check("ring", &params, 1, None).unwrap_err();
        assert_eq!((e.code, e.message.as_str()), (code::LAUNCH, "kernel `ring` takes 2 arguments, got 1"));
        check("ring", &params, 2, None).unwrap();
        check("ring", &params, 2, Some(&params)).unwrap();
        let e = check("ring", &params, 2, Some(&[params[0], plain(RUSHMEM_ARG_UINT, 8)])).unwrap_err();
        assert_eq!(
            e.message,
            "argument 1 of `ring`: the kernel takes int32_t (4 bytes), got uint64_t (8 bytes)"
        );
        let e = check("ring", &params, 2, Some(&[pointer(RUSHMEM_ARG_FLOAT, 4), params[1]])).unwrap_err();
        assert_eq!(
            e.message,
            "argument 0 of `ring`: the kernel takes double * (8 bytes), got float * (8 bytes)"
        );
    }

    #[test]
    fn values_are_copied() {
        let params =
            [plain(RUSHMEM_ARG_UINT, 1), plain(RUSHMEM_ARG_STRUCT, 200), plain(RUSHMEM_ARG_FLOAT, 8)];
        let (mut byte, mut big, mut real) = (7u8, [9u8; 200], 1.5f64);
        let values = [(&raw const byte).cast(), (&raw const big).cast(), (&raw const real).cast()];
        // SAFETY: pointers to values of the sizes said.
        let copied = unsafe { Copied::of("k", &params, &values) }.unwrap();
        (byte, big, real) = (0, [0; 200], 0.0);
        assert_eq!((byte, big[0], real), (0, 0, 0.0));
        let pointers = copied.pointers();
        // SAFETY: pointers to copies of these types.
        unsafe {
            assert_eq!(*pointers[0].cast::<u8>(), 7);
            assert_eq!(*pointers[1].cast::<[u8; 200]>(), [9; 200]);
            assert_eq!(*pointers[2].cast::<f64>(), 1.5);
        }
        // SAFETY: a null is refused before it is read.
        let e = unsafe { Copied::of("k", &params[..1], &[std::ptr::null()]) }.err().unwrap();
        assert_eq!(e.code, code::INVALID_ARGUMENT);
    }
}
