//! The layouts of commands, compared with those of Linux or rdma-core by a C compiler, where a machine has
//! `mlx5_ifc.h` (`RUSHMEM_TEST_MLX5_IFC` names one). The stand-in of the other tests has its own.

use std::path::PathBuf;
use std::process::Command;

use super::commands::ALL;

/// Of kernel headers that are installed, if any are.
fn header() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("RUSHMEM_TEST_MLX5_IFC") {
        return Some(named.into());
    }
    let kernels = std::fs::read_dir("/usr/src").ok()?.flatten();
    kernels.map(|entry| entry.path().join("include/linux/mlx5/mlx5_ifc.h")).find(|file| file.exists())
}

#[test]
fn fields_are_where_mlx5_ifc_has_them() {
    let Some(header) = header() else {
        eprintln!(
            "SKIP fields_are_where_mlx5_ifc_has_them: no mlx5_ifc.h (apt-get install linux-headers-amd64)"
        );
        return;
    };
    let text = std::fs::read_to_string(&header).unwrap();
    let mut body = format!(
        "#include <stddef.h>\n#include <stdint.h>\n#include <linux/types.h>\ntypedef uint8_t u8;\ntypedef uint32_t u32;\n\
         #include \"{}\"\n",
        header.display()
    );
    let mut compared = 0;
    for (of, name, field) in ALL {
        // rdma-core has no layout of completion queues, Linux has.
        let (at, known) = (field.at, text.contains(&format!("struct mlx5_ifc_{of}_bits {{")));
        let last = name.rsplit('.').next().unwrap();
        let (member, size) = (name, field.bits);
        let within = text.contains(&format!(" {last}[")) || text.contains(&format!("\t{last}["));
        if !known || !within {
            continue;
        }
        compared += 1;
        body += &format!(
            "_Static_assert(offsetof(struct mlx5_ifc_{of}_bits, {member}) == {at}, \"{of}.{name}: place\");\n"
        );
        if size != 128 {
            body += &format!(
                "_Static_assert(sizeof(((struct mlx5_ifc_{of}_bits *)0)->{member}) == {size}, \"{of}.{name}: bits\");\n"
            );
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("fields.c");
    std::fs::write(&source, body).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-fsyntax-only", "-w", "-I"]).arg(header.parent().unwrap()).arg(&source);
    let built = cc.output().expect("the tests need a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    assert!(compared > 30, "{compared} of {} fields compared with {}", ALL.len(), header.display());
}
