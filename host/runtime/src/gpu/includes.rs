//! Which files a source includes. NVRTC does not tell, and a cache must know: a changed header means another
//! kernel. So this looks for `#include` lines itself, with no regard to `#if`, which finds too many rather
//! than too few; only an include by macro escapes it.

use std::path::{Path, PathBuf};

/// The files outside the runtime that `source` includes, and those that they include. `dir` is the source's
/// own directory, `provided` tells what is included from memory.
pub(super) fn files(
    source: &str,
    dir: Option<&Path>,
    include_dirs: &[PathBuf],
    provided: &dyn Fn(&str) -> bool,
) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let add = |text: &str, dir: Option<&Path>, found: &mut Vec<PathBuf>| {
        for (name, quoted) in names(text) {
            if provided(name) {
                continue;
            }
            let own = dir.filter(|_| quoted).map(|dir| dir.join(name));
            let candidates = own.into_iter().chain(include_dirs.iter().map(|dir| dir.join(name)));
            let Some(file) = candidates.into_iter().find(|file| file.is_file()) else { continue };
            let file = std::path::absolute(&file).unwrap_or(file);
            if !found.contains(&file) {
                found.push(file);
            }
        }
    };
    add(source, dir, &mut found);
    let mut next = 0;
    while let Some(file) = found.get(next).cloned() {
        next += 1;
        if let Ok(text) = std::fs::read(&file) {
            add(&String::from_utf8_lossy(&text), file.parent(), &mut found);
        }
    }
    found
}

/// Names in `#include` lines, and whether in quotes.
pub(super) fn names(text: &str) -> impl Iterator<Item = (&str, bool)> {
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let close = match rest.chars().next()? {
            '"' => '"',
            '<' => '>',
            _ => return None,
        };
        let name = &rest[1..];
        Some((&name[..name.find(close)?], close == '"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn include_lines() {
        let text = "#include <a.h>\n  #  include \"b/c.h\" // why\n#include MACRO\n#included <x>\nint i; // #include <n>\n#include <open\n";
        assert_eq!(names(text).collect::<Vec<_>>(), [("a.h", false), ("b/c.h", true)]);
    }

    #[test]
    fn files_are_followed_once_each() {
        let temp = tempfile::tempdir().unwrap();
        let (own, far) = (temp.path().join("own"), temp.path().join("far"));
        std::fs::create_dir_all(&own).unwrap();
        std::fs::create_dir_all(&far).unwrap();
        std::fs::write(own.join("near.h"), "#include \"near.h\"\n#include <deep.h>\n").unwrap();
        std::fs::write(far.join("deep.h"), "#include <given.h>\n#include <nowhere.h>\n").unwrap();
        std::fs::write(far.join("near.h"), "").unwrap();
        std::fs::write(far.join("given.h"), "").unwrap();
        let source = "#include \"near.h\"\n#include <deep.h>\n#include <given.h>\n";
        let found = files(source, Some(&own), std::slice::from_ref(&far), &|name| name == "given.h");
        assert_eq!(found, [own.join("near.h"), far.join("deep.h")]);
        // In angles, the source's own directory does not count.
        assert_eq!(
            files("#include <near.h>\n", Some(&own), std::slice::from_ref(&far), &|_| false),
            [far.join("near.h")]
        );
    }
}
