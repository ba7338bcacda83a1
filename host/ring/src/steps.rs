//! What ties the model to the kernels' half: both sources make the same atomic operations on the same words
//! with the same orderings, in the same order, function by function. (That the header's own code does with a
//! [`Consumer`](crate::Consumer) what the model does is run, not modelled, in the runtime's
//! `net/proxy/ring_kernel_tests.rs`.)

const KERNELS: &str = include_str!("../../../device/include/rushmem/impl/net/ring.h");
const MODEL: &str = include_str!("model.rs");
const QUEUE_OF_KERNELS: &str = include_str!("../../../device/include/rushmem/impl/net/send_queue.h");
const QUEUE_MODEL: &str = include_str!("send_queue.rs");

/// In either source.
const FUNCTIONS: [(&str, &str); 5] = [
    ("bool ring_has_room(", "fn has_room("),
    ("bool ring_take_ticket(", "fn take_ticket("),
    ("uint64_t rushmem_far_post(const volatile ring_words *what) {", "fn post_as("),
    ("void rushmem_far_fence() {", "fn fence("),
    ("void rushmem_far_quiet() {", "fn quiet("),
];

/// In either source of a card's send queue.
const FUNCTIONS_OF_QUEUE: [(&str, &str); 6] = [
    ("bool queue_has_room(", "fn has_room("),
    ("bool queue_is_complete(", "fn is_complete("),
    ("bool queue_take(", "fn take("),
    ("void queue_stamp(", "fn stamp("),
    ("bool queue_ring(", "fn ring("),
    ("uint32_t queue_look(", "fn look("),
];

/// How an atomic operation is written in C++, and what it is.
const IN_KERNELS: [(&str, &str); 13] = [
    ("fetch_add_word(", "add relaxed"),
    ("compare_swap_word(", "swap relaxed"),
    ("load_relaxed_word(", "load relaxed"),
    ("load_acquire_word(", "load acquire"),
    ("store_relaxed_word(", "store relaxed"),
    ("store_release_word(", "store release"),
    ("store_release_word_gpu(", "store release"),
    ("fence_acq_rel(", "fence"),
    ("fence_acq_rel_gpu(", "fence"),
    ("ring_take_ticket(", "ticket"),
    ("ring_has_room(", "room"),
    ("queue_has_room(", "room"),
    ("ring_post(", "post"),
];

/// The text between a function's name and the closing brace that stands as far to the left as the function
/// does, without spaces.
fn body(source: &str, name: &str, closing: &str) -> String {
    let start = source.rfind(name).unwrap_or_else(|| panic!("no {name}")) + name.len();
    let end = source[start..].find(closing).unwrap_or_else(|| panic!("no end of {name}"));
    source[start..start + end].chars().filter(|c| !c.is_whitespace()).collect()
}

/// The last name of `&ring->tail.value`, `ring->busy`, `self.counters.tail` or `counters.busy[claim]`,
/// whatever is before it and which element of it.
fn word(path: &str) -> &str {
    let path = path.trim_end_matches(".value");
    let path = path.strip_suffix(']').and_then(|path| path.rsplit_once('[')).map_or(path, |(path, _)| path);
    path.rsplit(['.', '>', '&']).next().unwrap_or_default()
}

fn steps_of_kernels(body: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in body.match_indices('(') {
        let call = IN_KERNELS.iter().find(|(call, _)| body[..=at].ends_with(call));
        let Some((_, step)) = call else { continue };
        let argument = body[at + 1..].split([',', ')', '+']).next().unwrap_or_default();
        found.push(match step.contains(' ') {
            true => format!("{step} {}", word(argument)),
            false => (*step).to_owned(),
        });
    }
    found
}

fn steps_of_model(body: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in body.match_indices('(') {
        let before = &body[..at];
        let Some((on, method)) = before.rsplit_once(['.', '{', '}', ';']) else { continue };
        let arguments = body[at + 1..].split(')').next().unwrap_or_default();
        let order = ["Relaxed", "Acquire", "Release"].into_iter().find(|order| arguments.contains(order));
        let order = order.unwrap_or_default().to_lowercase();
        found.push(match method {
            "fetch_add" => format!("add {order} {}", word(on)),
            "compare_exchange" => format!("swap {order} {}", word(on)),
            "load" | "store" => format!("{method} {order} {}", word(on)),
            // Not atomic in the model, so that loom sees whether it has to be.
            "read" if on.ends_with(".value") => "load relaxed value".into(),
            "fence" => "fence".into(),
            "take_ticket" => "ticket".into(),
            "has_room" => "room".into(),
            "post_as" => "post".into(),
            _ => continue,
        });
    }
    found
}

#[test]
fn the_model_takes_the_steps_of_the_kernels() {
    for (in_kernels, in_model) in FUNCTIONS {
        let kernels = steps_of_kernels(&body(KERNELS, in_kernels, "\n}\n"));
        let model = steps_of_model(&body(MODEL, in_model, "\n    }\n"));
        assert!(!kernels.is_empty());
        assert_eq!(kernels, model, "impl/net/ring.h's {in_kernels} and the model's {in_model}");
    }
}

/// Of a completion the kernels read a second word where it says a failure, of which the model has none.
#[test]
fn the_model_takes_the_steps_of_a_cards_queue() {
    for (in_kernels, in_model) in FUNCTIONS_OF_QUEUE {
        let mut kernels = steps_of_kernels(&body(QUEUE_OF_KERNELS, in_kernels, "\n}\n"));
        kernels.dedup();
        let model = steps_of_model(&body(QUEUE_MODEL, in_model, "\n    }\n"));
        assert!(!kernels.is_empty());
        assert_eq!(kernels, model, "impl/net/send_queue.h's {in_kernels} and the model's {in_model}");
    }
}
