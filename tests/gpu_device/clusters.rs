//! Thread block clusters, asked for at the launch: on GPUs that have them blocks know their place in one, and
//! elsewhere the launch is refused.

use crate::*;

const RANKS: &str = r#"
#include <rushmem/rushmem.cuh>
/* Each block's place in its cluster, and the cluster's size, at the right-hand PE. */
extern "C" __global__ void ranks(uint32_t *at) {
  uint32_t rank = 0, size = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  if (threadIdx.x != 0) return;
  const int right = (rushmem::my_pe() + 1) % rushmem::n_pes();
  rushmem::p(at + 2 * blockIdx.x, rank, right);
  rushmem::p(at + 2 * blockIdx.x + 1, size, right);
}
"#;

#[test]
fn blocks_of_a_launch_form_clusters() {
    both(2, |world, _| {
        const BLOCKS: u32 = 8;
        let seen = world.alloc::<u32>(2 * BLOCKS as usize).unwrap();
        let module = world.load(RANKS).unwrap();
        let ranks = module.kernel("ranks").unwrap();
        let capable = rushmem::gpus().unwrap().first().is_some_and(|gpu| gpu.clusters);
        for size in [1, 2, 4] {
            world.barrier_all().unwrap();
            // SAFETY: two words of `seen` for each block, written by this kernel alone.
            let launched = unsafe { ranks.launch(Launch::new(BLOCKS, 32).cluster(size), (&seen,)) };
            if size > 1 && !(on_gpus() && capable) {
                assert_eq!(launched.unwrap_err().code(), ErrorCode::Unsupported);
                continue;
            }
            launched.unwrap();
            world.synchronize().unwrap();
            world.barrier_all().unwrap();
            if on_gpus() && capable {
                let expected = (0..BLOCKS).flat_map(|block| [block % size, size]);
                assert_eq!(seen.to_vec().unwrap(), expected.collect::<Vec<_>>(), "clusters of {size}");
            }
        }
        // A grid that is no whole number of clusters.
        if on_gpus() && capable {
            // SAFETY: refused.
            let odd = unsafe { ranks.launch(Launch::new(BLOCKS - 1, 32).cluster(2), (&seen,)) };
            assert_eq!(odd.unwrap_err().code(), ErrorCode::Launch);
        }
        world.barrier_all().unwrap();
    });
}
