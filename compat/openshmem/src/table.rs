//! Reads `operations.table`: every function of the specification, once. The build script makes the header and
//! the library's symbols of it, the tests their lists.

use std::collections::BTreeMap;

/// The table as it stands in the file.
pub const TEXT: &str = include_str!("../operations.table");

/// A type that operations repeat over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type {
    /// As it stands in names: `longlong`.
    pub name: String,
    /// In C: `long long`.
    pub c: String,
    /// The standard type that this is, or is another name of.
    pub standard: String,
}

/// A row of the table.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Its result.
    pub result: String,
    /// Its name with placeholders.
    pub name: String,
    /// Its arguments, without a context.
    pub arguments: String,
    /// The set of types or widths that it repeats over.
    pub over: Option<String>,
    /// The name of its C11 and C++ form.
    pub generic: Option<String>,
    /// The C expression that does it.
    pub body: String,
}

/// A chapter of the specification.
#[derive(Debug, Clone)]
pub struct Chapter {
    /// Its title.
    pub title: String,
    /// Its operations.
    pub operations: Vec<Operation>,
}

/// One function that comes of a row.
#[derive(Debug, Clone)]
pub struct Function {
    /// `shmem_ctx_float_put`.
    pub name: String,
    /// Its result.
    pub result: String,
    /// Its arguments, the context among them.
    pub arguments: String,
    /// The C expression that does it.
    pub body: String,
    /// The type or the width that it is for.
    pub of: Option<Type>,
    /// Whether it has a context in front that the row's other form does not have.
    pub with_context: bool,
}

/// The whole table.
#[derive(Debug, Clone, Default)]
pub struct Table {
    types: BTreeMap<String, Type>,
    sets: BTreeMap<String, Vec<String>>,
    /// Chapters in the order of the specification.
    pub chapters: Vec<Chapter>,
}

impl Table {
    /// The table of `text`; panics where it makes no sense, which is a mistake in the file.
    pub fn read(text: &str) -> Table {
        let mut table = Table::default();
        let mut title = "";
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        while let Some(line) = lines.next() {
            if let Some(new) = line.strip_prefix("== ") {
                title = new;
                if !["Types", "Sets"].contains(&title) {
                    table.chapters.push(Chapter { title: title.into(), operations: Vec::new() });
                }
                continue;
            }
            match title {
                "Types" => table.read_type(line),
                "Sets" => {
                    let (name, members) = line.split_once('=').expect("a set has members");
                    let members = members.split_whitespace().map(String::from).collect();
                    table.sets.insert(name.trim().into(), members);
                }
                _ => {
                    let body =
                        lines.next().filter(|body| body.starts_with("    ")).expect("a row has a body");
                    let row = Operation::read(line, body.trim());
                    let chapter = table.chapters.last_mut().expect("a row is in a chapter");
                    chapter.operations.push(row);
                }
            }
        }
        table
    }

    fn read_type(&mut self, line: &str) {
        let mut parts = line.split('=').map(|part| part.trim().to_string());
        let (Some(name), Some(c)) = (parts.next(), parts.next()) else { panic!("no type: {line}") };
        let standard = parts.next().unwrap_or_else(|| c.clone());
        self.types.insert(name.clone(), Type { name, c, standard });
    }

    /// What a row repeats over: types, or for widths types without a C type; nothing where it is one
    /// function.
    pub fn members(&self, row: &Operation) -> Vec<Type> {
        let Some(set) = &row.over else { return Vec::new() };
        let members = self.sets.get(set).unwrap_or_else(|| panic!("{}: there is no set {set}", row.name));
        let of = |name: &String| match self.types.get(name) {
            Some(found) => found.clone(),
            None => Type { name: name.clone(), c: String::new(), standard: String::new() },
        };
        members.iter().map(of).collect()
    }

    /// The functions of a row.
    pub fn functions(&self, row: &Operation) -> Vec<Function> {
        let members = self.members(row);
        let each: Vec<Option<Type>> =
            if members.is_empty() { vec![None] } else { members.into_iter().map(Some).collect() };
        let contexts: &[bool] = if row.name.contains("{ctx}") { &[false, true] } else { &[false] };
        each.iter().flat_map(|of| contexts.iter().map(|with| row.function(of.clone(), *with))).collect()
    }

    /// All functions.
    pub fn all(&self) -> Vec<Function> {
        let rows = self.chapters.iter().flat_map(|chapter| &chapter.operations);
        rows.flat_map(|row| self.functions(row)).collect()
    }
}

impl Operation {
    fn read(line: &str, body: &str) -> Operation {
        let open = line.find('(').expect("a row is a prototype");
        let close = line.rfind(')').expect("a row is a prototype");
        let start = line[..open].rfind([' ', '*']).expect("a row has a result") + 1;
        let mut words = line[close + 1..].split_whitespace();
        let (mut over, mut generic) = (None, None);
        while let (Some(what), Some(name)) = (words.next(), words.next()) {
            match what {
                "for" => over = Some(name.to_string()),
                "as" => generic = Some(name.to_string()),
                _ => panic!("{what} in: {line}"),
            }
        }
        Operation {
            result: line[..start].trim().into(),
            name: line[start..open].into(),
            arguments: line[open + 1..close].into(),
            over,
            generic,
            body: body.into(),
        }
    }

    fn function(&self, of: Option<Type>, with_context: bool) -> Function {
        let fill = |text: &str| {
            let text = text.replace("{ctx}", if with_context { "ctx_" } else { "" });
            let Some(of) = &of else { return text };
            if of.c.is_empty() {
                return text.replace("{S}", &of.name);
            }
            word(&text.replace("{T}", &of.name), &spelled(of))
        };
        let mut arguments = fill(&self.arguments);
        if with_context {
            let rest = if arguments == "void" { String::new() } else { format!(", {arguments}") };
            arguments = format!("shmem_ctx_t ctx{rest}");
        }
        let (name, result, body) = (fill(&self.name), fill(&self.result), fill(&self.body));
        Function { name, result, arguments, body, of, with_context }
    }
}

/// How the header spells a type: C++ has complex numbers of its own.
fn spelled(of: &Type) -> String {
    if of.c.ends_with("_Complex") {
        format!("rushmem_shmem_{}_t", of.name)
    } else {
        of.c.clone()
    }
}

/// `T` as a word becomes `with`.
fn word(text: &str, with: &str) -> String {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut out = String::new();
    let mut before = None;
    for (i, c) in text.char_indices() {
        if c == 'T' && !is_part(before) && !is_part(text[i + 1..].chars().next()) {
            out.push_str(with);
        } else {
            out.push(c);
        }
        before = Some(c);
    }
    out
}

/// The names in a list of arguments.
pub fn argument_names(arguments: &str) -> Vec<&str> {
    if arguments == "void" {
        return Vec::new();
    }
    let name = |argument: &'_ str| argument.rfind([' ', '*']).map_or(0, |at| at + 1);
    arguments.split(", ").map(|argument| &argument[name(argument)..]).collect()
}
