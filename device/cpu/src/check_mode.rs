//! What a run checks: `RUSHMEM_CHECK`, from the settings through the compiler to the checker.

/// What a run checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Data races.
    pub races: bool,
    /// Bounds, uses after free, shared memory that was never written, misaligned words, calls of a scope that
    /// not all of it make, and buffers that are reused too early.
    pub memory: bool,
}

impl Mode {
    /// Nothing.
    pub const OFF: Mode = Mode { races: false, memory: false };
    /// Data races.
    pub const RACES: Mode = Mode { races: true, memory: false };
    /// All but data races.
    pub const MEMORY: Mode = Mode { races: false, memory: true };

    /// What `RUSHMEM_CHECK` says: a list; a text where it says something that is not known.
    pub fn from_text(text: &str) -> Result<Mode, String> {
        let mut mode = Mode::OFF;
        for part in text.split(',').map(str::trim) {
            match part {
                "" | "0" => {}
                "1" => mode.memory = true,
                "races" => mode.races = true,
                other => {
                    return Err(format!(
                        "RUSHMEM_CHECK={text}: {other} is none of: 1, races, 0 (or a list of them)"
                    ))
                }
            }
        }
        Ok(mode)
    }

    /// The same as a number, for comparisons.
    pub fn bits(self) -> u64 {
        u64::from(self.races) | u64::from(self.memory) << 1
    }

    /// Whether anything is checked.
    pub fn is_on(self) -> bool {
        self != Mode::OFF
    }
}
