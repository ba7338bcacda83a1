//! Options that one device's compiler takes and the other's does not know: `--nvrtc=OPTION` for GPUs,
//! `--cxx=OPTION` for the CPU device. A program names both, and runs on either.

/// What comes before an option of the GPUs' compiler.
const NVRTC: &str = "--nvrtc=";
/// And before one of the CPU's.
const CXX: &str = "--cxx=";

/// The options for GPUs.
pub(super) fn for_gpus(options: Vec<String>) -> Vec<String> {
    of(options, NVRTC, CXX)
}

/// The options for the CPU device.
pub(super) fn for_the_cpu(options: Vec<String>) -> Vec<String> {
    of(options, CXX, NVRTC)
}

fn of(options: Vec<String>, own: &str, other: &str) -> Vec<String> {
    let mine = |option: String| match option.strip_prefix(own) {
        Some(rest) => rest.to_owned(),
        None => option,
    };
    options.into_iter().filter(|option| !option.starts_with(other)).map(mine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_compiler_has_its_own_and_those_of_both_in_order() {
        let all = ["-DA=1", "--nvrtc=--maxrregcount=64", "--cxx=-O3", "--kernel=f<int>", "--nvrtc=-lineinfo"];
        let all = || all.map(String::from).to_vec();
        assert_eq!(for_gpus(all()), ["-DA=1", "--maxrregcount=64", "--kernel=f<int>", "-lineinfo"]);
        assert_eq!(for_the_cpu(all()), ["-DA=1", "-O3", "--kernel=f<int>"]);
    }
}
