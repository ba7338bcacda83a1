//! Which libraries the process has, by soname. `dlopen` with RTLD_NOLOAD answers that, too, but where the
//! answer is no it has looked for a file in every folder of the system's search path first: hundreds of
//! system calls at the start of each PE.

use std::ffi::{c_int, c_void, CStr};

/// An entry of an object's dynamic section (ELF-64, "Dynamic Section").
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}
const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SONAME: i64 = 14;

/// Whether an object of this soname is in the process, whatever file it came from.
pub(crate) fn is_loaded(soname: &CStr) -> bool {
    let mut wanted = Wanted { soname, found: false };
    // SAFETY: the callback has the demanded type and gets the value that outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(compare), (&raw mut wanted).cast()) };
    wanted.found
}

struct Wanted<'a> {
    soname: &'a CStr,
    found: bool,
}

/// Sets `found` and ends the walk at the object that is wanted.
///
/// # Safety
/// The loader calls it for an object that stays meanwhile; `wanted` is a [`Wanted`] that nobody else uses.
unsafe extern "C" fn compare(info: *mut libc::dl_phdr_info, _size: usize, wanted: *mut c_void) -> c_int {
    // SAFETY: the loader's object, and the value that `is_loaded` lends for the walk.
    let (info, wanted) = unsafe { (&*info, &mut *wanted.cast::<Wanted>()) };
    // SAFETY: the loader vouches for the object's headers.
    if let Some(soname) = unsafe { soname(info) } {
        wanted.found = soname == wanted.soname;
    }
    c_int::from(wanted.found)
}

/// The soname that an object gives itself; a program and a library without one give none.
///
/// # Safety
/// `info` is of an object that is loaded, and stays so as long as the name is used.
unsafe fn soname(info: &libc::dl_phdr_info) -> Option<&CStr> {
    let base = info.dlpi_addr;
    let headers = match info.dlpi_phdr.is_null() {
        true => &[],
        // SAFETY: not null, so as many headers as the loader says.
        false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) },
    };
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let mut entry = base.wrapping_add(dynamic.p_vaddr) as *const Dynamic;
    let (mut names, mut name) = (None, None);
    loop {
        // SAFETY: the section is mapped with the object and ends with DT_NULL, where this loop ends.
        let Dynamic { tag, value } = unsafe { entry.read() };
        match tag {
            DT_NULL => break,
            DT_STRTAB => names = Some(value),
            DT_SONAME => name = Some(value),
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    let (names, name) = (names?, name?);
    // Most loaders write the address in memory over that in the file; those that do not, and the kernel's
    // own object, leave an offset.
    let names = if names < base { base.wrapping_add(names) } else { names };
    // SAFETY: an offset into the object's table of strings, each of which ends with a zero.
    Some(unsafe { CStr::from_ptr(names.wrapping_add(name) as *const _) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_loaded_and_nothing_else() {
        assert!(is_loaded(c"libc.so.6"), "every Rust program here has it");
        assert!(!is_loaded(c"libc.so"), "a file's name is no soname");
        assert!(!is_loaded(c"librushmem_of_nobody.so"));
    }

    /// As a library that another one brings along later; libresolv is part of every glibc, and not loaded by
    /// itself.
    #[test]
    fn finds_what_is_loaded_later() {
        let name = c"libresolv.so.2";
        // SAFETY: a library of the system's, without initialisers that touch anything of ours.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null());
        assert!(is_loaded(name));
    }
}
