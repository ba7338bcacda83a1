//! NVRTC's options as nvJitLink wants them. In LTO-IR most of the work is left to the linker, so whatever
//! says how code is to be made must be said again; what only concerns the language is done with.

/// nvJitLink's options for a kernel that NVRTC compiles under `options`, or why such a kernel is not to be
/// linked.
pub(super) fn translate(options: &[String]) -> Result<Vec<String>, String> {
    let mut all = vec!["-lto".to_owned()];
    let mut options = options.iter().map(String::as_str);
    while let Some(option) = options.next() {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let number = || match value {
            "true" => Ok(1),
            "false" => Ok(0),
            _ => Err(format!("`{option}` says neither true nor false")),
        };
        match name.trim_start_matches('-') {
            "arch" | "gpu-architecture" if value.starts_with("sm_") => all.push(format!("-arch={value}")),
            "arch" | "gpu-architecture" => return Err(format!("`{option}` names no real architecture")),
            "maxrregcount" => all.push(format!("-maxrregcount={value}")),
            "generate-line-info" | "lineinfo" => all.push("-lineinfo".into()),
            "use_fast_math" => {
                all.extend(["-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1"].map(Into::into))
            }
            "ftz" => all.push(format!("-ftz={}", number()?)),
            "prec-div" => all.push(format!("-prec-div={}", number()?)),
            "prec-sqrt" => all.push(format!("-prec-sqrt={}", number()?)),
            "fmad" => all.push(format!("-fma={}", number()?)),
            "Xptxas" | "ptxas-options" => {
                let value = if value.is_empty() { options.next().unwrap_or_default() } else { value };
                all.push(format!("-Xptxas={value}"));
            }
            // How the code is made by NVRTC: the linker knows no such thing, or the caller wants no linker.
            "device-debug"
            | "G"
            | "dopt"
            | "Ofast-compile"
            | "relocatable-device-code"
            | "rdc"
            | "dlink-time-opt"
            | "dlto"
            | "extensible-whole-program"
            | "ewp"
            | "gen-opt-lto"
            | "split-compile"
            | "device-stack-protector" => return Err(format!("of the option `{option}`")),
            _ => {}
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::translate;

    fn options_for(options: &[&str]) -> Result<String, String> {
        let options: Vec<String> = options.iter().map(|option| option.to_string()).collect();
        translate(&options).map(|all| all.join(" "))
    }

    #[test]
    fn what_makes_code_is_said_again() {
        assert_eq!(
            options_for(&["--gpu-architecture=sm_90", "-DX=1", "-I", "dir"]).unwrap(),
            "-lto -arch=sm_90"
        );
        assert_eq!(
            options_for(&["-arch=sm_90a", "--generate-line-info"]).unwrap(),
            "-lto -arch=sm_90a -lineinfo"
        );
        assert_eq!(
            options_for(&["--maxrregcount=32", "-use_fast_math", "--fmad=false", "--Xptxas", "-v"]).unwrap(),
            "-lto -maxrregcount=32 -ftz=1 -prec-div=0 -prec-sqrt=0 -fma=1 -fma=0 -Xptxas=-v"
        );
        for refused in ["-G", "--device-debug", "-rdc=true", "-arch=compute_90", "--ftz=maybe"] {
            assert!(options_for(&[refused]).unwrap_err().contains(refused));
        }
    }
}
