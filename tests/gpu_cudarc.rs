//! Slices of a GPU's heap as arguments of cudarc's functions, which take a `CudaSlice` by its traits.
#![cfg(feature = "cudarc")]

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use rushmem::testing;
use rushmem::{DeviceView, ErrorCode, SymRef};
use rushmem_test_support::api_common::both;
use rushmem_test_support::gpu_memory::{skip, Gpu, Maker, Memory, Vmm};

/// `x[i] = 2 * x[i] + y[i]`, for the first `n`.
const DOUBLE: &str = r#"
.version 7.0
.target sm_70
.address_size 64
.visible .entry double_and_add(.param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %i, %n, %t, %b;
  .reg .b64 %x, %y, %o;
  .reg .f32 %u, %v;
  ld.param.u64 %x, [x];
  ld.param.u64 %y, [y];
  ld.param.u32 %n, [n];
  mov.u32 %i, %ctaid.x;
  mov.u32 %b, %ntid.x;
  mov.u32 %t, %tid.x;
  mad.lo.u32 %i, %i, %b, %t;
  setp.ge.u32 %p, %i, %n;
  @%p bra done;
  mul.wide.u32 %o, %i, 4;
  add.u64 %x, %x, %o;
  add.u64 %y, %y, %o;
  ld.global.f32 %u, [%x];
  ld.global.f32 %v, [%y];
  add.f32 %u, %u, %u;
  add.f32 %u, %u, %v;
  st.global.f32 [%x], %u;
done:
  ret;
}
"#;

/// Something that takes whatever can be written as cudarc's own functions do, and gives back what it wrote.
fn fill(stream: &Arc<CudaStream>, to: &mut impl DevicePtrMut<f32>, value: f32) -> Vec<f32> {
    assert_eq!(to.num_bytes(), to.len() * 4);
    let data = vec![value; to.len()];
    stream.memcpy_htod(&data, to).unwrap();
    data
}

fn all(stream: &Arc<CudaStream>, from: &impl DevicePtr<f32>) -> Vec<f32> {
    stream.clone_dtoh(from).unwrap()
}

#[test]
fn views_are_taken_where_slices_are() {
    if skip("views_are_taken_where_slices_are") {
        return;
    }
    both(2, |world, rng| {
        let gpu = Gpu::of(world);
        let stream = gpu.context.new_stream().unwrap();
        let n = 1000 + rng.below(5000);
        let (me, right, left) = (world.my_pe().number() as f32, world.right(), world.left());
        let slice = world.alloc::<f32>(n).unwrap();
        let other = world.alloc::<f32>(n).unwrap();
        // SAFETY: no work.
        let len = |slice: &SymRef<'_, f32>| unsafe { slice.on_stream(&stream) }.unwrap().len();
        assert_eq!((len(&slice), len(&slice.slice(5..5).unwrap())), (n, 0));

        // Host to view, view to host.
        // SAFETY: here and below: all work ends before each barrier, and between two of them nobody touches
        // another PE's memory but as the test says.
        let mut mine: DeviceView<'_, f32> = unsafe { slice.on_stream(&stream) }.unwrap();
        let data: Vec<f32> = (0..n).map(|i| i as f32 + me).collect();
        stream.memcpy_htod(&data, &mut mine).unwrap();
        assert!(all(&stream, &mine) == data);
        stream.synchronize().unwrap();
        assert!(slice.to_vec().unwrap() == data, "the host's own operations see the same");

        // View to cudarc's slice and back, whole and in part.
        let mut theirs = stream.alloc_zeros::<f32>(n).unwrap();
        stream.memcpy_dtod(&mine, &mut theirs).unwrap();
        assert!(all(&stream, &theirs) == data);
        let part = other.slice(3..13).unwrap();
        // SAFETY: all work on the view ends before the barrier, and nobody else touches the memory until
        // then.
        let mut part = unsafe { part.on_stream(&stream) }.unwrap();
        assert_eq!(fill(&stream, &mut part, 4.5).len(), 10);
        assert!(all(&stream, &part) == [4.5; 10]);
        stream.memcpy_dtod(&theirs.slice(0..10), &mut part).unwrap();
        stream.synchronize().unwrap();
        let seen = other.to_vec().unwrap();
        assert!(seen[3..13] == data[..10] && seen[..3] == [0.0; 3] && seen[13..].iter().all(|x| *x == 0.0));

        // A kernel of cudarc's on views.
        let module = gpu.context.load_module(Ptx::from_src(DOUBLE)).unwrap();
        let kernel = module.load_function("double_and_add").unwrap();
        let count = n as u32;
        // SAFETY: the kernel reads `theirs` and writes `mine`, both of n elements.
        unsafe {
            let mut launch = stream.launch_builder(&kernel);
            launch.arg(&mut mine).arg(&theirs).arg(&count);
            launch.launch(LaunchConfig::for_num_elems(count)).unwrap();
        }
        let expected: Vec<f32> = data.iter().map(|x| 3.0 * x).collect();
        assert!(all(&stream, &mine) == expected);
        stream.synchronize().unwrap();
        world.barrier_all().unwrap();

        // A peer's memory, read and written over the link.
        // SAFETY: all work on the view ends before the barrier, and nobody else touches the memory until
        // then.
        let from = unsafe { slice.on_stream_at(right, &stream) }.unwrap();
        let right_has: Vec<f32> = (0..n).map(|i| 3.0 * (i as f32 + right.number() as f32)).collect();
        assert!(all(&stream, &from) == right_has);
        // SAFETY: all work on the view ends before the barrier, and nobody else touches the memory until
        // then.
        let mut to = unsafe { other.on_stream_at(right, &stream) }.unwrap();
        stream.memcpy_dtod(&mine, &mut to).unwrap();
        stream.synchronize().unwrap();
        world.barrier_all().unwrap();
        let left_has: Vec<f32> = (0..n).map(|i| 3.0 * (i as f32 + left.number() as f32)).collect();
        assert!(other.to_vec().unwrap() == left_has);
        world.barrier_all().unwrap();
    });
}

#[test]
fn views_of_registered_memory_are_its_own() {
    if skip("views_of_registered_memory_are_its_own") {
        return;
    }
    both(2, |world, _| {
        let gpu = Gpu::of(world);
        let stream = gpu.context.new_stream().unwrap();
        let (plain, vmm) =
            (Memory::new(&gpu, Maker::Plain, 8192), Vmm::new(&gpu, &[gpu.granularity()], true));
        for at in [plain.at, vmm.at] {
            let n = if at == vmm.at { vmm.bytes / 4 } else { 1024 };
            // SAFETY: the memory outlives the region, and is only used through it.
            let region = unsafe { world.register(at as *mut f32, n) }.unwrap();
            // SAFETY: its work ends before the barrier.
            let mut mine = unsafe { region.on_stream(&stream) }.unwrap();
            let data = fill(&stream, &mut mine, 1.5 + world.my_pe().number() as f32);
            stream.synchronize().unwrap();
            assert!(gpu.read::<f32>(at, n) == data);
            world.barrier_all().unwrap();
            // SAFETY: its work ends before the barrier, and nobody writes until then.
            let theirs = unsafe { region.on_stream_at(world.right(), &stream) }.unwrap();
            assert!(all(&stream, &theirs).iter().all(|x| *x == 1.5 + world.right().number() as f32));
            stream.synchronize().unwrap();
            world.barrier_all().unwrap();
            region.unregister().unwrap();
        }
    });
}

#[test]
fn streams_of_other_devices_and_contexts_are_refused() {
    if skip("streams_of_other_devices_and_contexts_are_refused") {
        return;
    }
    testing::pes(1).run(|world| {
        let gpu = Gpu::of(world);
        let slice = world.alloc::<f32>(8).unwrap();
        let refused = |context: &Arc<CudaContext>, word: &str| {
            let stream = context.new_stream().unwrap();
            // SAFETY: refused.
            let error = unsafe { slice.on_stream(&stream) }.map(drop).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
            assert!(error.message().contains(word), "{error}");
        };
        refused(&CudaContext::new_non_primary(gpu.index, 0).unwrap(), "primary");
        if rushmem::gpus().unwrap().len() > 1 {
            let other = (gpu.index + 1) % 2;
            refused(&CudaContext::new(other).unwrap(), &format!("of GPU {other}"));
        }
        gpu.context.bind_to_thread().unwrap();
        // SAFETY: no work.
        let missing = unsafe { slice.on_stream_at(rushmem::Pe::new(7), &gpu.context.default_stream()) };
        assert_eq!(missing.map(drop).unwrap_err().code(), ErrorCode::Unsupported);
    });
}

#[test]
fn heaps_in_host_memory_are_refused() {
    // In the PE's own process the variable says CPU.
    if std::env::var_os("RUSHMEM_PE").is_none() && skip("heaps_in_host_memory_are_refused") {
        return;
    }
    testing::pes(1).env("RUSHMEM_DEVICE", "cpu").run(|world| {
        let stream = CudaContext::new(0).unwrap().default_stream();
        // SAFETY: refused.
        let error = unsafe { world.alloc::<f32>(8).unwrap().on_stream(&stream) }.map(drop).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
        assert!(error.message().contains("host memory"), "{error}");
    });
}
