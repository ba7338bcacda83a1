//! A whole mixture-of-experts layer: a router chooses each token's experts, dispatch brings the tokens to the
//! ranks that hold them, the experts multiply, and combine brings the weighted sums back. Every number is
//! compared with a serial layer, which knows of no ranks.
//!
//! `rushmem-run -n 3 -- moe_layer --tokens 13 --experts 10 --top-k 3`

use std::process::ExitCode;

use clap::Parser;
use rushmem::{Device, Launch, Max, Source, World};
use rushmem_moe::{AllToAll, Config, Count, Float, Payload, Received, Tokens};

/// A mixture-of-experts layer, its experts spread over the PEs.
#[derive(Parser)]
struct Args {
    /// The most tokens of a PE; each has another number of them, PE 0 none.
    #[arg(long, default_value_t = 13, value_parser = clap::value_parser!(u32).range(1..=4096))]
    tokens: u32,
    /// Columns of a token, a multiple of 16.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=1024))]
    hidden: u32,
    /// Experts of all PEs.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1024))]
    experts: u32,
    /// Experts of a token.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=32))]
    top_k: u32,
    /// Layers, one after the other, of the same weights.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moe_layer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Small whole numbers, of which every order of additions makes the same.
fn drawn(what: u64, at: u64, most: u64) -> f32 {
    let mut x = what << 48 ^ at;
    for _ in 0..3 {
        x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    (x >> 33).rem_euclid(2 * most + 1) as f32 - most as f32
}

fn run(args: &Args) -> Outcome {
    let world = World::init()?;
    let (team, me, ranks) = (world.team(), u64::from(world.my_pe().number()), world.n_pes());
    let (hidden, experts, top_k) = (args.hidden as usize, args.experts as usize, args.top_k as usize);
    if top_k > experts {
        return Err(format!("{top_k} of {experts} experts cannot be chosen").into());
    }
    let config = Config::new(args.tokens, args.hidden, args.experts, args.top_k)
        .payload(Payload::Floats(Float::F32))
        .combine(Float::F32, Float::F32);
    let exchange = AllToAll::new(&team, config)?;
    let (local, capacity) = (config.experts_a_rank(ranks) as usize, config.rows(ranks) as usize);
    let first = me as usize * local;
    let n = (u64::from(args.tokens) * me).div_ceil(u64::from((ranks - 1).max(1))).min(u64::from(args.tokens))
        as usize;

    // What all PEs know is drawn, so that the serial layer knows it, too.
    let token = |round: u64, t: usize, h: usize| drawn(1 + me * 100 + round, (t * hidden + h) as u64, 3);
    let router = |h: usize, e: usize| drawn(90_000, (h * experts + e) as u64, 2);
    let matrix = |e: usize, h: usize, c: usize| drawn(90_001, ((e * hidden + h) * hidden + c) as u64, 1);
    let all = |n: usize, f: &dyn Fn(usize) -> f32| (0..n).map(f).collect::<Vec<f32>>();

    let x = world.alloc::<f32>(args.tokens as usize * hidden)?;
    let out = world.alloc::<f32>(args.tokens as usize * hidden)?;
    let chosen = world.alloc::<i32>(args.tokens as usize * top_k)?;
    let weights = world.alloc::<f32>(args.tokens as usize * top_k)?;
    let scores = world.alloc::<f32>(hidden * experts)?;
    let matrices = world.alloc::<f32>(local * hidden * hidden)?;
    let received = world.alloc::<f32>(local * capacity * hidden)?;
    let products = world.alloc::<f32>(local * capacity * hidden)?;
    let counts = world.alloc::<i32>(local)?;
    scores.write(&all(hidden * experts, &|i| router(i / experts, i % experts)))?;
    let of_matrices = |i: usize| matrix(first + i / hidden / hidden, i / hidden % hidden, i % hidden);
    matrices.write(&all(local * hidden * hidden, &of_matrices))?;

    let module = world.load(Source::text(include_str!("moe_layer.cu")).name("moe_layer.cu"))?;
    let (route, product) = (module.kernel("route")?, module.kernel("product")?);
    let shape = if world.device() == Device::Cpu { Launch::new(2, 32) } else { Launch::new(64, 256) };
    let stream = world.stream()?;
    let mut wrong = None;
    for round in 0..u64::from(args.rounds) {
        x.write(&all(n * hidden, &|i| token(round, i / hidden, i % hidden)))?;
        let tokens = Tokens {
            x: x.as_ptr().cast_const().cast(),
            side: std::ptr::null(),
            experts: chosen.as_ptr().cast_const().cast(),
            weights: weights.as_ptr(),
            count: Count::Host(n as u32),
        };
        let to = Received {
            x: received.as_ptr().cast(),
            side: std::ptr::null_mut(),
            counts: counts.as_ptr(),
            sources: std::ptr::null_mut(),
            experts: std::ptr::null_mut(),
            weights: std::ptr::null_mut(),
        };
        let sizes = (n as u32, args.hidden, args.experts, args.top_k);
        // SAFETY: allocations of these sizes, which nothing else uses until the stream has been waited for.
        unsafe {
            route.launch_on(
                shape,
                (&x, &scores, &chosen, &weights, sizes.0, sizes.1, sizes.2, sizes.3),
                &stream,
            )?;
            exchange.dispatch(&tokens, &to, &stream)?;
            let sizes = (local as u32, capacity as u32, args.hidden);
            let arguments = (&received, &counts, &matrices, &products, sizes.0, sizes.1, sizes.2);
            product.launch_on(shape, arguments, &stream)?;
            exchange.combine(products.as_ptr().cast_const().cast(), out.as_ptr().cast(), &stream)?;
        }
        stream.synchronize()?;
        exchange.check()?;

        let found = out.to_vec()?;
        for t in 0..n {
            let score = |e: usize| -> f32 { (0..hidden).map(|h| token(round, t, h) * router(h, e)).sum() };
            let mut order: Vec<(f32, usize)> = (0..experts).map(|e| (score(e), e)).collect();
            order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            for c in 0..hidden {
                let product =
                    |e: usize| -> f32 { (0..hidden).map(|h| token(round, t, h) * matrix(e, h, c)).sum() };
                let weighted =
                    order[..top_k].iter().enumerate().map(|(k, (_, e))| product(*e) / f32::from(2u16 << k));
                let (expected, found) = (weighted.sum::<f32>(), found[t * hidden + c]);
                if found != expected && wrong.is_none() {
                    wrong = Some(format!("round {round}, token {t}, column {c} is {found}, not {expected}"));
                }
            }
        }
    }
    // No PE reports success while another has found an error.
    let mut failed = [u32::from(wrong.is_some())];
    team.reduce_in_place(&mut failed, Max)?;
    match (wrong, failed[0]) {
        (Some(wrong), _) => return Err(format!("{}: {wrong}", world.my_pe()).into()),
        (None, 1..) => return Err("another PE found a wrong result".into()),
        (None, 0) => {}
    }
    if me == 0 {
        println!(
            "moe_layer: {} layers of {experts} experts, {top_k} a token, on {ranks} PEs: every number as in a serial layer",
            args.rounds
        );
    }
    stream.destroy()?;
    exchange.free()?;
    team.free()?;
    world.finalize()?;
    Ok(())
}
