//! Mixture-of-experts exchanges: the calls of `rushmem_moe::plan`, launched by the C ABI. `rushmem/moe.py` is
//! what programs see of it: it makes buffers, and compares types and shapes.

mod setup;

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyInt;
use rushmem_abi::c::*;
use rushmem_abi::device::RawTeam;
use rushmem_moe::plan::{Call, Plan, Products, RawReceived, RawTokens, Turns};
use rushmem_moe::{Config, Count, Layout, Received, Tokens};

use crate::core::Core;
use crate::error::{self, Failure};
use crate::ledger::{self, Allocation};
use crate::operand::{For, Held, Loan, Operand};
use crate::stream;
use crate::team::Team;

/// An exchange, as `rushmem.moe.AllToAll` holds it.
#[pyclass(frozen, weakref, module = "rushmem._rushmem", name = "_AllToAll")]
pub(crate) struct AllToAll {
    core: Arc<Core>,
    team: Py<Team>,
    me: u32,
    /// Not held through calls into the runtime.
    plan: Mutex<Plan>,
    memory: Mutex<Option<Arc<Allocation>>>,
    module: usize,
    kernels: [usize; 6],
    blocks: u32,
    default_stream: usize,
    turns: Turns,
}

fn said(error: rushmem_moe::Error) -> Failure {
    Failure(RUSHMEM_ERR_INVALID_ARGUMENT, error.to_string())
}

/// What a call takes behind team and exchange.
enum Arguments {
    Dispatch(RawTokens, RawReceived),
    Send(RawTokens),
    Receive(RawReceived),
    Combine(Products),
}

// SAFETY: addresses are passed on as they are; nothing is read behind them.
unsafe impl Sync for Arguments {}

fn structure<T>(value: &T) -> (*const std::ffi::c_void, u32) {
    (std::ptr::from_ref(value).cast(), size_of::<T>() as u32)
}

/// Arrays of a call; none is null.
#[derive(Default)]
struct Arrays(Vec<Operand>);

impl Arrays {
    /// The address of an array of at least so many bytes.
    fn at(
        &mut self,
        core: &Core,
        object: Option<&Bound<'_, PyAny>>,
        what: &str,
        bytes: usize,
        use_: For,
    ) -> PyResult<usize> {
        let Some(object) = object else { return Ok(0) };
        let py = object.py();
        let operand = Operand::of(object, what, use_)?;
        operand.check_dense(py, what)?;
        if core.is_gpu() && matches!(operand.held, Held::Buffer(_) | Held::Object(_, true)) {
            let text = format!("{what} is in host memory, which this GPU's kernels do not reach");
            return Err(error::invalid(py, &text));
        }
        if operand.bytes() < bytes {
            let text = format!("{what} has {} bytes, {bytes} are needed", operand.bytes());
            return Err(error::invalid(py, &text));
        }
        let at = if operand.bytes() == 0 { 0 } else { operand.at };
        self.0.push(operand);
        Ok(at)
    }
}

type Object<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

impl AllToAll {
    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self, py: Python<'_>) -> PyResult<Arc<Allocation>> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone();
        memory.ok_or_else(|| error::of(py, RUSHMEM_ERR_BAD_HANDLE, "this exchange was freed"))
    }

    /// Puts a call on its stream; without one it is over on return.
    fn launch(
        &self,
        py: Python<'_>,
        call: Call,
        arguments: &Arguments,
        arrays: Arrays,
        on: Object<'_, '_>,
    ) -> PyResult<()> {
        let (core, team) = (&*self.core, self.team.get().raw(py)?);
        let handle = stream::handle(core, on)?;
        let on = handle.unwrap_or(self.default_stream);
        let memory = self.memory(py)?;
        memory.uses.note(on);
        let (exchange, shared_bytes, threads) = {
            let plan = self.plan();
            (plan.exchange(), plan.shared_bytes(call), plan.threads())
        };
        let kernel = self.kernels[Call::ALL.into_iter().position(|one| one == call).expect("one of all")];
        core.run(py, || {
            let turn = self.turns.begin(call).map_err(said)?;
            let mut raw = std::mem::MaybeUninit::<RawTeam>::uninit();
            let t = core.table;
            // SAFETY: a live team, and room for its form in kernels.
            Failure::check(t, unsafe { (t.team_device)(team as *mut _, raw.as_mut_ptr().cast()) })?;
            let mut all = vec![structure(&raw), structure(&exchange)];
            match arguments {
                Arguments::Dispatch(tokens, to) => all.extend([structure(tokens), structure(to)]),
                Arguments::Send(tokens) => all.push(structure(tokens)),
                Arguments::Receive(to) => all.push(structure(to)),
                Arguments::Combine(products) => all.push(structure(products)),
            }
            let types: Vec<_> = all
                .iter()
                .map(|(_, size)| rushmem_arg_type_t {
                    kind: RUSHMEM_ARG_STRUCT,
                    size: *size,
                    pointee_kind: RUSHMEM_ARG_UNKNOWN,
                    pointee_size: 0,
                })
                .collect();
            let values: Vec<_> = all.iter().map(|(value, _)| *value).collect();
            let config = rushmem_launch_t {
                size: size_of::<rushmem_launch_t>() as u32,
                flags: RUSHMEM_LAUNCH_EARLY,
                grid: [self.blocks, 1, 1],
                block: [threads, 1, 1],
                shared_bytes: shared_bytes as u64,
                stream: on as *mut _,
                cluster: [0; 3],
                reserved: 0,
            };
            // SAFETY: a live kernel; as many values and types as said, which outlive the call. The arrays
            // have the sizes that the plan says, and are held until the stream has passed the launch.
            Failure::check(t, unsafe {
                (t.launch)(kernel as *mut _, &config, values.as_ptr(), types.as_ptr(), types.len())
            })?;
            turn.done();
            Ok(())
        })?;
        let mut loan = Loan::default();
        for operand in arrays.0 {
            operand.lend(py, on, &mut loan)?;
        }
        stream::lend(py, core, on, loan)?;
        if handle.is_none() {
            stream::synchronize(py, core, on)?;
        }
        Ok(())
    }

    /// Where tokens are received: of arrays x, side, counts, sources, experts, weights.
    fn received(
        &self,
        py: Python<'_>,
        to: [Object<'_, '_>; 6],
        arrays: &mut Arrays,
    ) -> PyResult<RawReceived> {
        let plan = self.plan().clone();
        let (config, ranks) = (plan.config(), plan.ranks());
        let (rows, local) = (config.all_rows(ranks) as usize, config.experts_a_rank(ranks) as usize);
        let is_rank_major = config.layout_of_rows() == Layout::RankMajor;
        let chosen = if is_rank_major { rows * config.top_k() as usize * 4 } else { 0 };
        let counts = if is_rank_major { ranks as usize } else { local };
        let sizes = [
            ("out.x", rows * config.row_bytes() as usize),
            ("out.side", rows * config.side_bytes() as usize),
            ("out.counts", counts * 4),
            ("out.sources", rows * 4),
            ("out.experts", chosen),
            ("out.weights", chosen),
        ];
        let mut at = [0; 6];
        for (i, (name, bytes)) in sizes.into_iter().enumerate() {
            at[i] = arrays.at(&self.core, to[i], name, bytes, For::Writing)?;
        }
        let to = Received {
            x: at[0] as *mut _,
            side: at[1] as *mut _,
            counts: at[2] as *mut _,
            sources: at[3] as *mut _,
            experts: at[4] as *mut _,
            weights: at[5] as *mut _,
        };
        plan.received(&to).map_err(|error| said(error).raise(py))
    }

    /// A rank's tokens: of arrays x, side, experts, weights; `count` a number, or a word of the device.
    fn tokens(
        &self,
        py: Python<'_>,
        of: [Object<'_, '_>; 4],
        count: &Bound<'_, PyAny>,
        arrays: &mut Arrays,
    ) -> PyResult<RawTokens> {
        let (plan, core) = (self.plan().clone(), &*self.core);
        let config = plan.config();
        let host = match count.is_instance_of::<PyInt>() {
            true => Some(count.extract::<u32>()?),
            false => None,
        };
        // What the word says is only known there: then the arrays are as long as can be.
        let n = host.unwrap_or(config.max_tokens()) as usize;
        let count = match host {
            Some(count) => Count::Host(count),
            None => Count::Device(arrays.at(core, Some(count), "count", 4, For::Reading)? as *const u32),
        };
        let chosen = n * config.top_k() as usize;
        let side = if config.is_cast() { 0 } else { config.side_bytes() as usize };
        let sizes = [
            ("x", n * config.token_bytes() as usize),
            ("side", n * side),
            ("experts", chosen * if config.is_wide() { 8 } else { 4 }),
            ("weights", if config.is_weighted() { chosen * 4 } else { 0 }),
        ];
        let mut at = [0; 4];
        for (i, (name, bytes)) in sizes.into_iter().enumerate() {
            at[i] = arrays.at(core, of[i], name, bytes, For::Reading)?;
        }
        let tokens = Tokens {
            x: at[0] as *const _,
            side: at[1] as *const _,
            experts: at[2] as *const _,
            weights: at[3] as *const _,
            count,
        };
        plan.tokens(&tokens).map_err(|error| said(error).raise(py))
    }

    fn products(&self, py: Python<'_>, y: usize, out: usize) -> PyResult<Arguments> {
        let products = self.plan().products(y as *const _, out as *mut _);
        products.map(Arguments::Combine).map_err(|error| said(error).raise(py))
    }
}

#[pymethods]
impl AllToAll {
    #[new]
    #[pyo3(signature = (team, max_tokens, hidden, experts, top_k, *, dispatch_dtype, scales, row_and_side_bytes, combine_dtype,
        out_dtype, layout, align, capacity, rounded_sums, weighted, wide_experts, few, blocks, threads,
        shared_routing))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        team: Py<Team>,
        max_tokens: u32,
        hidden: u32,
        experts: u32,
        top_k: u32,
        dispatch_dtype: &str,
        scales: &str,
        row_and_side_bytes: Option<(u32, u32)>,
        combine_dtype: &str,
        out_dtype: &str,
        layout: &str,
        align: u32,
        capacity: Option<u32>,
        rounded_sums: bool,
        weighted: bool,
        wide_experts: bool,
        few: Option<u32>,
        blocks: Option<u32>,
        threads: Option<u32>,
        shared_routing: Option<u32>,
    ) -> PyResult<AllToAll> {
        let mut config = Config::new(max_tokens, hidden, experts, top_k)
            .payload(setup::payload(py, dispatch_dtype, scales, row_and_side_bytes)?)
            .combine(setup::float(py, combine_dtype)?, setup::float(py, out_dtype)?)
            .layout(setup::layout(py, layout, align)?);
        config = if rounded_sums { config.rounded_sums() } else { config };
        config = if weighted { config } else { config.unweighted() };
        config = if wide_experts { config.wide_experts() } else { config };
        config = capacity.map_or(config, |rows| config.capacity(rows));
        config = few.map_or(config, |tokens| config.few(tokens));
        config = blocks.map_or(config, |blocks| config.blocks(blocks));
        config = threads.map_or(config, |threads| config.threads(threads));
        config = shared_routing.map_or(config, |bytes| config.shared_routing(bytes));
        let t = team.get();
        let (core, raw, ranks, members) =
            (Arc::clone(&t.core), t.raw(py)?, t.n() as u32, t.members_in_world().to_vec());
        let me = t.me() as u32;
        // What cannot be is refused before anything is done.
        Plan::new(config, ranks, false, core.is_gpu()).map_err(|error| said(error).raise(py))?;
        let (plan, memory, (module, kernels, blocks), default_stream) = core.run(py, || {
            let far = setup::is_far(&core, raw, &members)?;
            let mut plan = Plan::new(config, ranks, far, core.is_gpu()).map_err(said)?;
            ledger::collect(&core)?;
            let memory = ledger::allocate(&core, plan.bytes())?;
            plan.place(memory.at);
            let mut on = std::ptr::null_mut();
            // SAFETY: a live handle, and a place for the answer.
            Failure::check(core.table, unsafe { (core.table.stream_default)(core.raw(), &mut on) })?;
            let loaded = setup::load(&core, &mut plan)?;
            Ok((plan, memory, loaded, on as usize))
        })?;
        let (plan, memory) = (Mutex::new(plan), Mutex::new(Some(memory)));
        let turns = Turns::default();
        Ok(AllToAll { core, team, me, plan, memory, module, kernels, blocks, default_stream, turns })
    }

    /// Experts of this rank at most, rows of `x` in all, rows of an expert (or source), bytes of a row, bytes
    /// beside it, bytes of a token before the cast.
    fn sizes(&self) -> (u32, u64, u32, u32, u32, u32) {
        let plan = self.plan();
        let (config, ranks) = (plan.config(), plan.ranks());
        let (rows, row, side) = (config.rows(ranks), config.row_bytes(), config.side_bytes());
        (config.experts_a_rank(ranks), config.all_rows(ranks), rows, row, side, config.token_bytes())
    }

    /// Bytes of the symmetric heap, on each PE.
    #[getter]
    fn symmetric_bytes(&self) -> usize {
        self.plan().bytes()
    }

    /// Blocks and threads of each launch.
    #[getter]
    fn shape(&self) -> (u32, u32) {
        (self.blocks, self.plan().threads())
    }

    /// `tokens`: x, side, experts, weights; `to`: x, side, counts, sources, experts, weights.
    #[pyo3(signature = (tokens, count, to, stream))]
    #[allow(clippy::type_complexity, reason = "as many arrays as a call has")]
    fn dispatch<'py>(
        &self,
        py: Python<'py>,
        tokens: Option<[Option<Bound<'py, PyAny>>; 4]>,
        count: &Bound<'py, PyAny>,
        to: Option<[Option<Bound<'py, PyAny>>; 6]>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let mut arrays = Arrays::default();
        let tokens = tokens
            .as_ref()
            .map(|of| self.tokens(py, of.each_ref().map(Option::as_ref), count, &mut arrays))
            .transpose()?;
        let to = to
            .as_ref()
            .map(|to| self.received(py, to.each_ref().map(Option::as_ref), &mut arrays))
            .transpose()?;
        let (call, arguments) = match (tokens, to) {
            (Some(tokens), Some(to)) => (Call::Dispatch, Arguments::Dispatch(tokens, to)),
            (Some(tokens), None) => (Call::DispatchSend, Arguments::Send(tokens)),
            (None, Some(to)) => (Call::DispatchReceive, Arguments::Receive(to)),
            (None, None) => {
                return Err(error::invalid(py, "a dispatch has tokens, a place for them, or both"))
            }
        };
        self.launch(py, call, &arguments, arrays, stream)
    }

    /// `out` has room for `count` sums.
    #[pyo3(signature = (y, out, count, stream))]
    fn combine(
        &self,
        py: Python<'_>,
        y: Object<'_, '_>,
        out: Object<'_, '_>,
        count: usize,
        stream: Object<'_, '_>,
    ) -> PyResult<()> {
        let mut arrays = Arrays::default();
        let (rows, row, sum) = {
            let plan = self.plan();
            let (produced, sum) = plan.config().combine_bytes();
            (plan.config().all_rows(plan.ranks()) as usize, produced as usize, sum as usize)
        };
        let call = match (y.is_some(), out.is_some()) {
            (true, true) => Call::Combine,
            (true, false) => Call::CombineSend,
            _ => Call::CombineReceive,
        };
        let y = arrays.at(&self.core, y, "y", rows * row, For::Reading)?;
        let out = arrays.at(&self.core, out, "out", count * sum, For::Writing)?;
        let arguments = self.products(py, y, out)?;
        self.launch(py, call, &arguments, arrays, stream)
    }

    /// The first round that was refused since the last call: its number, and why.
    fn check(&self, py: Python<'_>) -> PyResult<Option<(u64, String)>> {
        let (memory, words) = (self.memory(py)?, self.plan().failure_words());
        let mut said = vec![0_u64; words.len()];
        let (core, at) = (&*self.core, memory.at + 8 * words.start);
        let (to, me, t) = (&mut said, core.view.my_pe, core.table);
        core.run(py, || {
            // SAFETY: a live handle; room for as many words, and as many of the exchange's memory.
            Failure::check(t, unsafe {
                (t.get)(core.raw(), to.as_mut_ptr().cast(), at as *const _, 8 * to.len(), me)
            })?;
            if to[0] == 0 {
                return Ok(());
            }
            // SAFETY: a live handle; a word of the exchange's memory.
            Failure::check(t, unsafe { (t.others.p)(core.raw(), at as *mut _, 0, 8, me) })?;
            // SAFETY: a live handle.
            Failure::check(t, unsafe { (t.quiet)(core.raw()) })
        })?;
        let failure = self.plan().failure(&said);
        Ok(failure.map(|failure| (failure.round, failure.to_string())))
    }

    /// A flag for each rank: those that are true are out of the exchange.
    fn set_absent(&self, py: Python<'_>, absent: Vec<bool>) -> PyResult<()> {
        let set = self.plan().set_absent(&absent, self.me);
        set.map_err(|error| said(error).raise(py))
    }

    /// Gives the memory back. Collective over the world.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).take();
        let memory =
            memory.ok_or_else(|| error::of(py, RUSHMEM_ERR_BAD_HANDLE, "this exchange was freed"))?;
        let (core, module) = (&self.core, self.module);
        let freed = core.run(py, || {
            // SAFETY: a module's handle; one whose kernels run is refused.
            Failure::check(core.table, unsafe { (core.table.module_unload)(module as *mut _) })?;
            ledger::free(&memory)
        });
        if freed.is_err() {
            *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
        }
        freed
    }
}
