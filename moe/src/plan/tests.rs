//! Where experts are copied and where they are read in place, and what is refused.

use super::*;
use crate::Float;

fn is_in_place(plan: &Plan) -> bool {
    plan.options().contains(&"-DMOE_IN_PLACE=1".to_string())
}

#[test]
fn experts_are_copied_as_long_as_shared_memory_has_room_for_them() {
    for (ranks, max_tokens, in_place) in
        [(2, 4096, false), (4, 2500, false), (4, 3500, true), (8, 1250, false), (8, 8192, true)]
    {
        for layout in [Layout::ExpertMajor, Layout::RankMajor, Layout::Flat { align: 128 }] {
            let config = Config::new(max_tokens, 7168, 256, 8).layout(layout);
            let plan = Plan::new(config, ranks, false, true).unwrap();
            assert_eq!(is_in_place(&plan), in_place, "{ranks} ranks of {max_tokens} tokens, {layout:?}");
            assert!(plan.most_shared_bytes() <= MOST_SHARED as usize);
            assert_eq!(plan.blocks(1).unwrap(), 1);
        }
    }
}

#[test]
fn a_device_with_less_shared_memory_is_given_other_options_once() {
    let config = Config::new(4096, 7168, 256, 8);
    let mut plan = Plan::new(config, 2, false, true).unwrap();
    // Counts of 16 warps, and three rooms of each with what belongs to them.
    let counts = (256 + 16 * 128) * 4;
    let rooms = |bytes: usize| 16 * (3 * bytes + 336usize).next_multiple_of(128);
    let copied = 2 * 4096 * 16 + counts + rooms(1408);
    assert_eq!((plan.shared_bytes(Call::Dispatch), is_in_place(&plan)), (copied, false));
    assert!(plan.less_shared() && is_in_place(&plan));
    assert_eq!(plan.shared_bytes(Call::Dispatch), counts + rooms(768));
    assert!(!plan.less_shared());
    let exact = config.shared_routing(2 * 4096 * 16 + 384 * 4);
    assert!(!is_in_place(&Plan::new(exact, 2, false, true).unwrap()));
    let less = config.shared_routing(2 * 4096 * 16 + 384 * 4 - 1);
    assert!(is_in_place(&Plan::new(less, 2, false, true).unwrap()));
}

/// With many experts fewer warps take rows, as each counts those of its rank.
#[test]
fn as_many_warps_take_rows_as_have_room_for_their_counts() {
    for (experts, takers) in [(256, 16), (1024, 16), (2048, 8), (40000, 1)] {
        let plan = Plan::new(Config::new(4096, 7168, experts, 8), 2, false, true).unwrap();
        assert!(plan.options().contains(&format!("--nvrtc=-DMOE_TAKERS={takers}")), "{experts}");
        assert!(experts == 40000 || plan.shared_bytes(Call::Dispatch) + BESIDES <= MOST_SHARED as usize);
    }
    let rank_major = Config::new(4096, 7168, 40000, 8).layout(Layout::RankMajor);
    let options = Plan::new(rank_major, 2, false, true).unwrap().options();
    assert!(options.contains(&"--nvrtc=-DMOE_TAKERS=16".to_string()), "{options:?}");
}

/// Rounds whose sums are all packets need no room for pieces; others have it on every launch of a combine.
#[test]
fn combines_have_room_for_their_pieces() {
    let bytes = |config: Config, call| Plan::new(config, 2, false, true).unwrap().shared_bytes(call);
    let config = Config::new(129, 7168, 256, 8);
    for call in [Call::Combine, Call::CombineSend, Call::CombineReceive] {
        assert_eq!(bytes(config, call), 8 * (4 * 2048 + 128));
        assert_eq!(bytes(config.threads(512), call), 16 * (4 * 2048 + 128));
        assert_eq!(bytes(config.threads(1024), call), 32 * (2 * 2048 + 128));
        assert_eq!(bytes(Config::new(128, 7168, 256, 8), call), 0);
    }
    let far = Plan::new(Config::new(1, 7168, 256, 8), 2, true, true).unwrap();
    assert_eq!(far.shared_bytes(Call::Combine), 8 * (4 * 2048 + 128));
    let mut plan = Plan::new(config, 2, false, true).unwrap();
    assert!(plan.less_shared() && plan.options().contains(&"--nvrtc=-DMOE_PIECES=2".to_string()));
    assert_eq!(plan.shared_bytes(Call::Combine), plan.threads() as usize / 32 * (2 * 2048 + 128));
}

#[test]
fn what_is_too_large_is_refused_with_its_numbers() {
    let plan = Plan::new(Config::new(8, 64, 65534, 8).shared_routing(0), 2, false, true).unwrap();
    let error = plan.blocks(0).unwrap_err().to_string();
    for part in ["65534 experts", "32767 of them", "395892 bytes", "232448 at most", "fewer experts"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let error = Plan::new(Config::new(65536, 64, 65534, 8), 256, false, true).err().unwrap().to_string();
    for part in ["256 ranks", "65536 tokens", "4294967296 rows", "2147483647", "lower max_tokens"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // Rows are those of all experts in the flat layout, and those of all sources in the rank-major one.
    for layout in [Layout::Flat { align: 1 }, Layout::RankMajor] {
        Plan::new(Config::new(65536, 64, 4096, 8).layout(layout), 2, false, true).unwrap();
    }
}

/// Kernels of their own, where all is packets and no expert can have too many tokens.
#[test]
fn exchanges_for_few_tokens_have_kernels_of_their_own() {
    let is_few = |config: Config, ranks, far| {
        let plan = Plan::new(config, ranks, far, true).unwrap();
        let few = plan.options().contains(&"-DMOE_FEW=1".to_string());
        assert_eq!(few, plan.exchange().records != plan.exchange().sent, "{few}: its records");
        assert!(!few || plan.most_shared_bytes() <= 32 << 10);
        few
    };
    let config = Config::new(32, 7168, 256, 8);
    for (layout, few) in
        [(Layout::ExpertMajor, true), (Layout::RankMajor, true), (Layout::Flat { align: 4 }, false)]
    {
        for ranks in [1, 2, 32, 33] {
            assert_eq!(is_few(config.layout(layout), ranks, false), few && ranks <= 32, "{layout:?}");
        }
        assert!(!is_few(config.layout(layout), 2, true));
    }
    let of = |tokens| Config::new(tokens, 7168, 256, 8);
    for layout in [Layout::ExpertMajor, Layout::RankMajor] {
        let of = |tokens| of(tokens).layout(layout);
        assert!(
            is_few(of(128), 2, false) && !is_few(of(129), 1, false) && is_few(of(129).few(129), 1, false)
        );
        assert!(is_few(of(64), 4, false) && !is_few(of(65), 4, false) && !is_few(of(33), 8, false));
        assert!(is_few(of(33).few(33), 8, false) && !is_few(of(128), 3, false));
    }
    assert!(!is_few(config.few(31), 2, false));
    assert!(is_few(config.capacity(64), 2, false) && !is_few(config.capacity(63), 2, false));
    assert!(!is_few(config.shared_routing(100), 2, false) && !is_few(Config::new(1, 16, 65534, 1), 2, false));
}

/// Where blocks are few and all sums are of one type; those for few tokens have no such sums.
#[test]
fn lanes_fetch_what_few_blocks_add() {
    let by_lanes = |config: Config| {
        let options = Plan::new(config, 2, false, true).unwrap().options();
        let [no, yes] = [0, 1].map(|by| options.contains(&format!("-DMOE_BY_LANES={by}")));
        assert_ne!(no, yes, "{options:?}");
        yes
    };
    let config = Config::new(4096, 7168, 256, 8);
    assert!(!by_lanes(config.rounded_sums()) && !by_lanes(config.blocks(24)));
    assert!(by_lanes(config.rounded_sums().blocks(48)) && !by_lanes(config.rounded_sums().blocks(49)));
    assert!(!by_lanes(config.layout(Layout::RankMajor).blocks(24)));
    assert!(by_lanes(config.combine(Float::F32, Float::Bf16).blocks(24)));
    assert!(!by_lanes(Config::new(32, 7168, 256, 8).rounded_sums().blocks(24)));
}

/// A block of few has the warps of a multiprocessor. Where there is no room for what its lanes have under
/// way, the warp fetches; and only then are experts read in place.
#[test]
fn few_blocks_have_more_warps_and_take_less_memory_if_they_must() {
    let config = Config::new(512, 7168, 256, 8).rounded_sums();
    let plan = |blocks| Plan::new(config.blocks(blocks), 2, false, true).unwrap();
    assert_eq!((plan(49).threads(), plan(48).threads()), (256, 512));
    let mut few = plan(24);
    assert_eq!(few.shared_bytes(Call::Combine), 16 * (6 * 2048 + 128));
    assert!(few.less_shared() && !is_in_place(&few));
    assert_eq!(few.shared_bytes(Call::Combine), 16 * (4 * 2048 + 128));
    assert!(few.less_shared() && is_in_place(&few) && !few.less_shared());
}

/// Kernels that are compiled ahead are those that GPUs ask for.
#[test]
fn options_are_the_same_on_every_device() {
    for tokens in [1, 129, 4096, 8192] {
        for (layout, threads) in [(Layout::ExpertMajor, None), (Layout::RankMajor, Some(96))] {
            let config = Config::new(tokens, 7168, 256, 8).layout(layout);
            let config = threads.map_or(config, |threads| config.threads(threads));
            for (ranks, far) in [(1, false), (8, false), (8, true)] {
                let of = |on_gpu| Plan::new(config, ranks, far, on_gpu).unwrap();
                let (cpu, gpu) = (of(false), of(true));
                assert_eq!(cpu.options(), gpu.options());
                let threads = |of: &str, plan: &Plan| format!("--{of}=-DMOE_THREADS={}", plan.threads());
                for option in [threads("cxx", &cpu), threads("nvrtc", &gpu)] {
                    assert!(cpu.options().contains(&option), "{option}");
                }
            }
        }
    }
}

/// A launch of few tokens has half of the threads where these deal out all its work at once.
#[test]
fn blocks_of_few_tokens_have_as_many_warps_as_there_is_work() {
    let threads = |tokens, hidden| {
        let config = Config::new(tokens, hidden, 256, 8);
        Plan::new(config, 2, false, true).unwrap().threads()
    };
    // 3 * 39 items of 132 blocks, 3 * 8 * 39, 3 * 32 * 39, and 3 * 32 * 7; eight warps at least.
    assert_eq!([1, 8, 32].map(|tokens| threads(tokens, 7168)), [256, 256, 512]);
    assert_eq!(threads(32, 1024), 256);
}
