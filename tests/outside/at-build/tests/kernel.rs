//! The kernel runs, from text or from machine code, as the device is; and the build script got the right
//! things.

use rushmem::{Device, Launch, Source};

#[test]
fn a_kernel_that_was_compiled_with_the_crate_runs() {
    assert!(at_build::BUILT_AGAINST.starts_with("0."), "{}", at_build::BUILT_AGAINST);
    match at_build::CODE {
        Some(code) => assert_eq!(code[..4], *b"\x7fELF"),
        None => eprintln!("SKIP machine code: the build found no nvcc"),
    }
    rushmem::testing::run(2, |world| {
        let module = match (world.device(), at_build::CODE) {
            (Device::Cuda(_), Some(code)) => world.load_module("double.cubin", code)?,
            _ => world.load(Source::text(at_build::TEXT).name("double.cu"))?,
        };
        let (to, from) = (world.alloc::<u64>(100)?, world.alloc::<u64>(100)?);
        let mine: Vec<u64> = (0..100).map(|i| i + 1000 * u64::from(world.my_pe().number())).collect();
        from.write(&mine)?;
        world.barrier_all()?;
        // SAFETY: both have as many words as the kernel's argument says; only it touches them meanwhile.
        unsafe { module.kernel("twice")?.launch(Launch::new(1, 64), (&to, &from, 100_usize)) }?;
        world.synchronize()?;
        let left = 1000 * u64::from(world.left().number());
        assert_eq!(to.to_vec()?, (0..100).map(|i| 2 * (i + left)).collect::<Vec<u64>>());
        Ok::<(), rushmem::Error>(())
    });
}
