//! The layout of what host and kernels share, as a C compiler sees the header, beside what it is here.

use std::process::Command;

/// A program that tells numbers of a header, and what they are here.
pub(crate) struct Layout {
    program: String,
    expected: String,
}

impl Layout {
    /// Of `rushmem/<header>`.
    pub(crate) fn of(header: &str) -> Layout {
        let program = format!(
            "#include <stdio.h>\n#include <stddef.h>\n#include \"rushmem/{header}\"\n\
             #define TELL(what) printf(#what \" %lld\\n\", (long long)(what));\nint main(void) {{\n"
        );
        Layout { program, expected: String::new() }
    }

    /// An expression of C's, and its value here.
    pub(crate) fn is(&mut self, expression: &str, value: i64) {
        self.program += &format!("TELL({expression})\n");
        self.expected += &format!("{expression} {value}\n");
    }

    /// Fails where the two are not alike.
    #[track_caller]
    pub(crate) fn check(self) {
        let dir = tempfile::tempdir().unwrap();
        let (source, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
        std::fs::write(&source, self.program + "return 0; }\n").unwrap();
        let include = concat!(env!("CARGO_MANIFEST_DIR"), "/../../device/include");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Werror", "-I", include, "-o"]).args([&binary, &source]);
        let built = cc.output().expect("the tests need a C compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let said = Command::new(&binary).output().unwrap();
        assert!(said.status.success(), "{}", said.status);
        assert_eq!(String::from_utf8_lossy(&said.stdout), self.expected);
    }
}

/// A structure's size and the places of its fields: `fields!(layout, "c_name", RustType: one two three)`.
macro_rules! fields {
    ($layout:ident, $c:literal, $rust:ty: $($field:ident)*) => {
        $layout.is(concat!("sizeof(", $c, ")"), size_of::<$rust>() as i64);
        $($layout.is(
            concat!("offsetof(", $c, ", ", stringify!($field), ")"),
            std::mem::offset_of!($rust, $field) as i64,
        );)*
    };
}

/// Constants: `numbers!(layout, C_NAME = value, …)`.
macro_rules! numbers {
    ($layout:ident, $($name:ident = $value:expr),* $(,)?) => {
        $($layout.is(stringify!($name), $value as i64);)*
    };
}

pub(crate) use {fields, numbers};
