//! Reads `operations.table`: every operation of the interface, once. The build script makes the headers and
//! the library's symbols of it, the tests their lists.

use std::collections::BTreeMap;

/// The table as it stands in the file.
pub const TEXT: &str = include_str!("../operations.table");

/// A type that operations repeat over, or a width, which has no C type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    /// As it stands in names: `longlong`.
    pub name: String,
    /// In C: `long long`.
    pub c: String,
}

impl Type {
    /// Whether it is one of the 16-bit floats, which only CUDA's headers have.
    pub fn is_half(&self) -> bool {
        ["half", "bfloat16"].contains(&self.name.as_str())
    }
}

/// Who calls a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// The host, or the host for a stream: a symbol of the library.
    Host,
    /// One thread of a kernel.
    Thread,
    /// Several threads of a kernel.
    Group,
}

/// A row of the table.
#[derive(Debug, Clone)]
pub struct Operation {
    result: String,
    name: String,
    arguments: String,
    over: Option<String>,
    /// What stands in front of each form's expression (`host`, `device twb`), and the expression.
    forms: Vec<(String, String)>,
}

/// A part of the interface.
#[derive(Debug, Clone)]
pub struct Chapter {
    /// Its title.
    pub title: String,
    /// Its operations.
    pub operations: Vec<Operation>,
}

/// One function.
#[derive(Debug, Clone)]
pub struct Function {
    /// `nvshmemx_float_put_block`.
    pub name: String,
    /// Its result.
    pub result: String,
    /// Its arguments.
    pub arguments: String,
    /// The expression that does it: C for the host, CUDA C++ in kernels.
    pub body: String,
    /// Who calls it.
    pub caller: Caller,
    /// The type or the width that it is for.
    pub of: Option<Type>,
}

/// The whole table.
#[derive(Debug, Clone, Default)]
pub struct Table {
    types: BTreeMap<String, Type>,
    sets: BTreeMap<String, Vec<String>>,
    /// Chapters in the order of the file.
    pub chapters: Vec<Chapter>,
}

impl Table {
    /// The table of `text`; panics where it makes no sense, which is a mistake in the file.
    pub fn read(text: &str) -> Table {
        let mut table = Table::default();
        let mut title = "";
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            if let Some(new) = line.strip_prefix("== ") {
                title = new;
                if !["Types", "Sets"].contains(&title) {
                    table.chapters.push(Chapter { title: title.into(), operations: Vec::new() });
                }
            } else if let ("Types" | "Sets", Some((name, is))) = (title, line.split_once('=')) {
                let (name, is) = (name.trim().to_string(), is.trim().to_string());
                if title == "Types" {
                    table.types.insert(name.clone(), Type { name, c: is });
                } else {
                    table.sets.insert(name, is.split_whitespace().map(String::from).collect());
                }
            } else {
                let operations = &mut table.chapters.last_mut().expect("a row is in a chapter").operations;
                match line.strip_prefix("    ") {
                    Some(form) => operations.last_mut().expect("a form is of a row").add(form),
                    None => operations.push(Operation::read(line)),
                }
            }
        }
        table
    }

    /// The types of a set, or widths without a C type.
    pub fn members(&self, set: &str) -> Vec<Type> {
        let members = self.sets.get(set).unwrap_or_else(|| panic!("there is no set {set}"));
        let of = |name: &String| {
            self.types.get(name).cloned().unwrap_or_else(|| Type { name: name.clone(), c: String::new() })
        };
        members.iter().map(of).collect()
    }

    /// The functions of a row.
    pub fn functions(&self, row: &Operation) -> Vec<Function> {
        let each: Vec<Option<Type>> = match &row.over {
            None => vec![None],
            Some(set) => self.members(set).into_iter().map(Some).collect(),
        };
        each.iter().flat_map(|of| row.functions(of.as_ref())).collect()
    }

    /// The sets of types as lists that tests' programs repeat over,
    /// `#define FOR_RMA(X) X(longlong, t_longlong) …`, but for the 16-bit floats, which have no arithmetic on
    /// the host.
    pub fn lists(&self) -> String {
        let of = |set: &str| self.members(set).into_iter().filter(|of| !of.is_half()).collect::<Vec<_>>();
        let mut text: String =
            of("rma").iter().map(|of| format!("typedef {} t_{};\n", of.c, of.name)).collect();
        for set in ["rma", "amo", "extended_amo", "bitwise_amo", "wait"] {
            let all: Vec<String> = of(set).iter().map(|of| format!("X({0}, t_{0})", of.name)).collect();
            text.push_str(&format!("#define FOR_{}(X) {}\n", set.to_uppercase(), all.join(" ")));
        }
        text
    }

    /// All functions.
    pub fn all(&self) -> Vec<Function> {
        let rows = self.chapters.iter().flat_map(|chapter| &chapter.operations);
        rows.flat_map(|row| self.functions(row)).collect()
    }
}

impl Operation {
    fn read(line: &str) -> Operation {
        let open = line.find('(').expect("a row is a prototype");
        let close = line.rfind(')').expect("a row is a prototype");
        let start = line[..open].rfind([' ', '*']).expect("a row has a result") + 1;
        let over = line[close + 1..].trim().strip_prefix("for ");
        Operation {
            result: line[..start].trim().into(),
            name: line[start..open].into(),
            arguments: line[open + 1..close].into(),
            over: over.map(String::from),
            forms: Vec::new(),
        }
    }

    fn add(&mut self, form: &str) {
        let words = if form.starts_with("host") || form.starts_with("stream") { 1 } else { 2 };
        let end = form.match_indices(' ').nth(words - 1).expect("a form has an expression").0;
        self.forms.push((form[..end].into(), form[end + 1..].into()));
    }

    fn functions(&self, of: Option<&Type>) -> Vec<Function> {
        let mut all = Vec::new();
        for (form, body) in &self.forms {
            match form.split_once(' ') {
                None if form == "host" => all.push(self.function(of, body, "", "", Caller::Host, "")),
                None => {
                    all.push(self.function(of, body, "x", "_on_stream", Caller::Host, "cudaStream_t stream"))
                }
                Some((kind, initials)) => {
                    for letter in initials.chars() {
                        let (ending, scope) = scope(letter);
                        let caller = if letter == 't' { Caller::Thread } else { Caller::Group };
                        let body = word(body, 'G', scope);
                        let (prefix, more) = match (kind, letter) {
                            ("queue", _) => ("x_qp", "nvshmemx_qp_handle_t"),
                            (_, 't') => ("", ""),
                            _ => ("x", ""),
                        };
                        all.push(self.function(of, &body, prefix, ending, caller, more));
                    }
                }
            }
        }
        all
    }

    fn function(
        &self,
        of: Option<&Type>,
        body: &str,
        prefix: &str,
        ending: &str,
        caller: Caller,
        more: &str,
    ) -> Function {
        let fill = |text: &str| match of {
            None => word(text, 'W', "unsigned char"),
            Some(of) if of.c.is_empty() => {
                word(&text.replace("{S}", &of.name), 'W', &format!("impl::bits{}", of.name))
            }
            Some(of) => word(&text.replace("{T}", &of.name), 'T', &of.c),
        };
        let name = fill(&self.name);
        let name = if name.starts_with("nvshmem") { name } else { format!("nvshmem{prefix}_{name}{ending}") };
        let mut arguments = fill(&self.arguments);
        if !more.is_empty() {
            arguments = if arguments == "void" { more.into() } else { format!("{arguments}, {more}") };
        }
        let (result, body) = (fill(&self.result), fill(body));
        Function { name, result, arguments, body, caller, of: of.cloned() }
    }
}

/// The end of a scope's names, and what it is in kernels.
fn scope(letter: char) -> (&'static str, &'static str) {
    match letter {
        't' => ("", "rushmem::thread"),
        'w' => ("_warp", "rushmem::warp"),
        'b' => ("_block", "rushmem::block"),
        'g' => ("_warpgroup", "impl::warpgroup"),
        _ => panic!("{letter} is no scope"),
    }
}

/// `what` as a word becomes `with`.
fn word(text: &str, what: char, with: &str) -> String {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut out = String::new();
    let mut before = None;
    for (i, c) in text.char_indices() {
        if c == what && !is_part(before) && !is_part(text[i + 1..].chars().next()) {
            out.push_str(with);
        } else {
            out.push(c);
        }
        before = Some(c);
    }
    out
}
