//! How well kernels are optimised.

/// The compiler's level, `-O2` by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimization(&'static str);

impl Default for Optimization {
    fn default() -> Self {
        Optimization("-O2")
    }
}

impl Optimization {
    /// What the environment asks for (`RUSHMEM_CPU_OPT`): 0 to 3, or `g`, which compiles fastest of what
    /// optimises. The error names the variable.
    pub fn from_env() -> Result<Self, String> {
        let Some(text) = std::env::var_os("RUSHMEM_CPU_OPT").filter(|text| !text.is_empty()) else {
            return Ok(Optimization::default());
        };
        Optimization::parse(&text.to_string_lossy())
            .ok_or_else(|| format!("RUSHMEM_CPU_OPT={} is none of 0, 1, 2, 3 and g", text.to_string_lossy()))
    }

    fn parse(text: &str) -> Option<Self> {
        let levels = [("0", "-O0"), ("1", "-O1"), ("2", "-O2"), ("3", "-O3"), ("g", "-Og")];
        levels.iter().find(|(level, _)| *level == text.trim()).map(|(_, option)| Optimization(option))
    }

    /// The compiler's option.
    pub(crate) fn option(self) -> &'static str {
        self.0
    }

    /// The compiler's option for debug information: lines of all code, and variables where nothing is
    /// optimised, of which an `-O…` among a kernel's own options decides. With optimisation most variables
    /// have no place at most lines, and to say where they are takes a quarter of a compiler's time.
    pub(crate) fn debug_information(self, options: &[impl AsRef<str>]) -> &'static str {
        let own = options.iter().map(AsRef::as_ref).rfind(|option| option.starts_with("-O"));
        match own.unwrap_or(self.0) {
            "-O0" => "-g",
            _ => "-g1",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Optimization;

    #[test]
    fn levels() {
        assert_eq!(Optimization::parse("2"), Some(Optimization::default()));
        assert_eq!(Optimization::parse(" g ").map(Optimization::option), Some("-Og"));
        for bad in ["", "4", "-1", "-O2", "O2", "fast", "s"] {
            assert_eq!(Optimization::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn variables_are_there_where_nothing_is_optimised() {
        for (level, options, wanted) in [
            ("0", &[][..], "-g"),
            ("2", &[], "-g1"),
            ("g", &["-DX"], "-g1"),
            ("2", &["-O0", "-DO3"], "-g"),
            ("0", &["-O0", "-O2"], "-g1"),
        ] {
            let of = Optimization::parse(level).expect("a level").debug_information(options);
            assert_eq!(of, wanted, "{level} {options:?}");
        }
    }
}
