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
}
