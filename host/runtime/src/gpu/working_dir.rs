//! Whether the working directory has a part in what NVRTC makes of a source. Only then does the cache's key
//! have it, so that what comes from memory alone is compiled once for all folders.
//!
//! NVRTC (12.4 to 13.0) looks there
//! - for relative paths in options;
//! - for what a source with a relative name includes in quotes, and `-lineinfo` names that source there;
//! - for what a header from memory includes in quotes, whatever the source's name: such text is in no folder.
//!
//! It does not look there for names in angles, and a file that is included has a folder of its own. `-G`
//! writes the directory into the code. Whatever this module cannot tell counts as a part: that costs another
//! compilation, while a wrong entry would be a wrong kernel.

use std::path::{Path, PathBuf};

use rushmem_device_cpu::Header;

use super::includes;

/// Options that name no file, without their dashes and values.
const OF_NO_FILE: &[&str] = &[
    "arch",
    "gpu-architecture",
    "std",
    "lineinfo",
    "generate-line-info",
    "default-device",
    "device-as-default-execution-space",
    "define-macro",
    "undefine-macro",
    "maxrregcount",
    "use_fast_math",
    "ftz",
    "prec-div",
    "prec-sqrt",
    "fmad",
    "extra-device-vectorization",
    "restrict",
    "disable-warnings",
    "w",
    "diag-error",
    "diag-suppress",
    "diag-warn",
];

/// The working directory, where it has a part in what becomes of the source of that name with these headers
/// from memory, under these options.
pub(super) fn part_of(name: &str, source: &str, headers: &[Header], options: &[String]) -> Option<PathBuf> {
    let looks_around = |text: &str| looks_around(text, headers);
    let has_part = !only_full_paths(options)
        || is_there(name)
        || Path::new(name).is_relative() && looks_around(source)
        || headers.iter().any(|header| looks_around(header.1));
    has_part.then(std::env::current_dir).and_then(Result::ok)
}

/// Whether all options are known to name no file, or to name folders in full.
fn only_full_paths(options: &[String]) -> bool {
    let in_full = |dir: &str| Path::new(dir).is_absolute();
    let mut options = options.iter().map(String::as_str);
    while let Some(option) = options.next() {
        let known = match option {
            "-I" | "--include-path" => options.next().is_some_and(in_full),
            _ => match option.strip_prefix("--include-path=").or_else(|| option.strip_prefix("-I")) {
                Some(dir) => in_full(dir),
                None => names_no_file(option),
            },
        };
        if !known {
            return false;
        }
    }
    true
}

fn names_no_file(option: &str) -> bool {
    let macros = option.starts_with("-D") || option.starts_with("-U");
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    macros || name.starts_with('-') && OF_NO_FILE.contains(&name.trim_start_matches('-'))
}

/// Whether the name is that of a file in the working directory, or leads on from there.
fn is_there(name: &str) -> bool {
    let path = Path::new(name);
    path.is_relative() && (path.components().count() > 1 || path.is_file())
}

/// Whether the text includes in quotes what is not in memory, or what is no name: a macro, say.
fn looks_around(text: &str, headers: &[Header]) -> bool {
    let text = text.replace("\\\n", "").replace("\\\r\n", "");
    let asks = ["__has_include", "__has_embed"].iter().any(|word| text.contains(word));
    let harmless = includes::names(&text)
        .filter(|(name, quoted)| !quoted || headers.iter().any(|header| header.0 == *name));
    asks || harmless.count() < directives(&text)
}

/// Directives that include something, wherever in a line.
fn directives(text: &str) -> usize {
    let words = ["include", "import", "embed"];
    let after = |mark| text.split(mark).skip(1).map(str::trim_start);
    let includes = |rest: &&str| words.iter().any(|word| rest.starts_with(word));
    after("#").chain(after("%:")).filter(includes).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: &[Header] = &[("mine.h", "#include <mine/more.h>\n"), ("mine/more.h", "int x;\n")];

    fn options(all: &[&str]) -> Vec<String> {
        all.iter().map(|option| option.to_string()).collect()
    }

    #[test]
    fn what_is_in_memory_is_the_same_in_all_folders() {
        let source = "#include <mine.h>\n#include \"mine/more.h\"\nint y = 7 % x;\n";
        let all =
            options(&["--gpu-architecture=sm_90", "-std=c++17", "-lineinfo", "-DN=\"a/b\"", "-UM", "-w"]);
        for name in ["kernel.cu", "/nowhere/kernel.cu", ""] {
            assert_eq!(part_of(name, source, HEADERS, &all), None, "{name}");
        }
    }

    #[test]
    fn the_options_paths() {
        let part = |all: &[&str]| part_of("kernel.cu", "", HEADERS, &options(all)).is_some();
        for same in [&["-I/usr"][..], &["-I", "/usr"], &["--include-path=/usr"], &["--include-path", "/usr"]]
        {
            assert!(!part(same), "{same:?}");
        }
        for other in [
            &["-Iinclude"][..],
            &["-I", "include"],
            &["-I."],
            &["-I"],
            &["--include-path=include"],
            &["--include-path", "include"],
            &["-I/usr", "-I", "../include"],
            &["--pre-include=first.h"],
            &["-include", "first.h"],
            &["--pch-dir=made"],
            // It names the directory in the code.
            &["-G"],
            // Unknown.
            &["--of-tomorrow"],
            &["D=1"],
        ] {
            assert!(part(other), "{other:?}");
        }
    }

    #[test]
    fn a_source_of_a_relative_name_and_its_includes() {
        let part = |name, source| part_of(name, source, HEADERS, &[]).is_some();
        assert!(part("folder/kernel.cu", "") && part("./kernel.cu", "") && part("../kernel.cu", ""));
        // A file of the folder in which tests run.
        assert!(part("Cargo.toml", "") && !part("kernel.cu", ""));
        for source in [
            "#include \"beside.h\"\n",
            "/* */ #include \"beside.h\"\n",
            "# \\\n  include \"beside.h\"\n",
            "%:include \"beside.h\"\n",
            "#include MACRO\n",
            "#include_next <beside.h>\n",
            "#embed \"beside.h\"\n",
            "#if __has_include(\"beside.h\")\n#endif\n",
        ] {
            assert!(part("kernel.cu", source), "{source}");
            assert!(!part("/nowhere/kernel.cu", source), "{source}");
        }
        assert!(!part("kernel.cu", "#include <beside.h>\n"), "only in folders that options name");
    }

    #[test]
    fn a_header_from_memory_that_includes_a_file() {
        let headers: &[Header] = &[("mine.h", "#include \"beside.h\"\n")];
        assert!(part_of("/nowhere/kernel.cu", "#include <mine.h>\n", headers, &[]).is_some());
    }

    #[test]
    fn the_device_library_is_in_memory() {
        let headers = crate::kernel::headers::DEVICE_HEADERS;
        let source = "#include <rushmem/rushmem.cuh>\n";
        assert_eq!(part_of("kernel.cu", source, headers, &options(&["-DRUSHMEM_GPU_TRACE"])), None);
    }
}
