//! Finds the kernels of a source: `__global__` function definitions at namespace scope, with their qualified
//! names. It reads preprocessed text, in which only `__global__` has been left standing, so that macros and
//! `#if` have done their work; what a kernel's parameters are is left to the compiler.

use crate::token::{tokenize, Token, TokenKind};

/// How a kernel can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelForm {
    /// As it is.
    Function,
    /// Only its instances.
    Template,
    /// An explicit instantiation or specialisation: the name ends in its arguments.
    Instance,
}

/// A kernel definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Qualified, without leading `::`; unnamed namespaces are left out.
    pub(crate) name: String,
    pub(crate) form: KernelForm,
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// The kernels defined in `preprocessed`, in order.
pub(crate) fn kernels(preprocessed: &str) -> Vec<Found> {
    let tokens = tokenize(preprocessed);
    let mut scanner = Scanner { tokens: &tokens.list, at: 0, scopes: Vec::new(), found: Vec::new() };
    scanner.run();
    let place = |(name, form, line, file): (String, KernelForm, u32, usize)| Found {
        name,
        form,
        line,
        file: tokens.files[file].clone(),
    };
    scanner.found.into_iter().map(place).collect()
}

/// Qualified names of the kernels that are plain functions in `text`, which has no preprocessor directives.
pub fn function_kernels(text: &str) -> Vec<String> {
    let functions = kernels(text).into_iter().filter(|found| found.form == KernelForm::Function);
    functions.map(|found| found.name).collect()
}

struct Scanner<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    /// Names of the open namespaces; empty for unnamed ones and `extern "C"`.
    scopes: Vec<String>,
    found: Vec<(String, KernelForm, u32, usize)>,
}

impl<'a> Scanner<'a> {
    fn peek(&self, ahead: usize) -> Option<&'a Token<'a>> {
        self.tokens.get(self.at + ahead)
    }

    fn is(&self, ahead: usize, text: &str) -> bool {
        self.peek(ahead).is_some_and(|token| token.is(text))
    }

    fn run(&mut self) {
        let mut form = KernelForm::Function;
        while let Some(token) = self.peek(0) {
            match token.text {
                _ if token.kind == TokenKind::Literal => self.at += 1,
                "namespace" => self.namespace(),
                "extern" if self.peek(1).is_some_and(|t| t.kind == TokenKind::Literal) && self.is(2, "{") => {
                    self.scopes.push(String::new());
                    self.at += 3;
                }
                "template" => {
                    self.at += 1;
                    form = self.template_head();
                }
                "__global__" => {
                    self.kernel(form);
                    form = KernelForm::Function;
                }
                "}" => {
                    self.scopes.pop();
                    self.at += 1;
                    form = KernelForm::Function;
                }
                // A function, a class, an initialiser: a declaration ends here or soon.
                "{" => {
                    self.skip_pair("{", "}");
                    form = KernelForm::Function;
                }
                "(" => self.skip_pair("(", ")"),
                ";" => {
                    form = KernelForm::Function;
                    self.at += 1;
                }
                // Such as `static void` between `template <…>` and `__global__`.
                _ => self.at += 1,
            }
        }
    }

    /// `namespace a::b {`, `namespace {`, `inline namespace a {`, or an alias.
    fn namespace(&mut self) {
        self.at += 1;
        let mut names = Vec::new();
        while let Some(token) = self.peek(0) {
            self.at += 1;
            match token.text {
                "{" => {
                    self.scopes.push(names.join("::"));
                    return;
                }
                ";" | "=" => return,
                "__attribute__" => self.skip_pair("(", ")"),
                "[" => {
                    self.at -= 1;
                    self.skip_pair("[", "]");
                }
                "inline" => {}
                name if token.kind == TokenKind::Name => names.push(name),
                _ => {}
            }
        }
    }

    /// After `template`: its parameters, if it has any.
    fn template_head(&mut self) -> KernelForm {
        if !self.is(0, "<") {
            return KernelForm::Instance;
        }
        let empty = self.is(1, ">");
        self.skip_angles();
        if empty {
            KernelForm::Instance
        } else {
            KernelForm::Template
        }
    }

    /// From `__global__` to the end of the declaration.
    fn kernel(&mut self, form: KernelForm) {
        let (line, file) = self.peek(0).map_or((0, 0), |token| (token.line, token.file));
        self.at += 1;
        let mut name = String::new();
        while let Some(token) = self.peek(0) {
            match token.text {
                "__attribute__" | "__launch_bounds__" | "alignas" | "decltype" | "__cluster_dims__"
                | "__maxnreg__" | "__declspec"
                    if self.is(1, "(") =>
                {
                    self.at += 1;
                    self.skip_pair("(", ")");
                }
                "[" => self.skip_pair("[", "]"),
                "<" => {
                    let start = self.at;
                    self.skip_angles();
                    name += &self.spelled(start);
                }
                "::" => {
                    name += "::";
                    self.at += 1;
                }
                "(" => break,
                // Not a function after all.
                ";" | "{" | "}" | "=" => return,
                text if token.kind == TokenKind::Name => {
                    if !name.ends_with("::") {
                        name.clear();
                    }
                    name += text;
                    self.at += 1;
                }
                _ => {
                    name.clear();
                    self.at += 1;
                }
            }
        }
        self.skip_pair("(", ")");
        while let Some(token) = self.peek(0) {
            match token.text {
                "(" => self.skip_pair("(", ")"),
                "{" => {
                    self.skip_pair("{", "}");
                    self.record(name, form, line, file);
                    return;
                }
                ";" | "}" => {
                    // An explicit instantiation is a declaration; any other is defined elsewhere.
                    if form == KernelForm::Instance && name.ends_with('>') {
                        self.record(name, form, line, file);
                    }
                    return;
                }
                _ => self.at += 1,
            }
        }
    }

    fn record(&mut self, name: String, form: KernelForm, line: u32, file: usize) {
        let mut path: Vec<&str> = self.scopes.iter().map(String::as_str).filter(|s| !s.is_empty()).collect();
        let name = name.trim_start_matches("::");
        path.push(name);
        let name = path.join("::");
        if !self.found.iter().any(|known| known.0 == name && form == KernelForm::Instance) {
            self.found.push((name, form, line, file));
        }
    }

    /// The text from token `start` to here, names kept apart.
    fn spelled(&self, start: usize) -> String {
        let mut out = String::new();
        let mut was_name = false;
        for token in &self.tokens[start..self.at] {
            let is_name = token.kind != TokenKind::Punct;
            if was_name && is_name {
                out.push(' ');
            }
            was_name = is_name;
            out += token.text;
            if token.text == "," {
                out.push(' ');
            }
        }
        out
    }

    /// Skips to after the bracket that closes the next `open`.
    fn skip_pair(&mut self, open: &str, close: &str) {
        let mut depth = 0usize;
        while let Some(token) = self.peek(0) {
            self.at += 1;
            if token.is(open) {
                depth += 1;
            } else if token.is(close) {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return;
                }
            }
        }
    }

    /// Skips `<…>`. What is in round brackets doesn't count.
    fn skip_angles(&mut self) {
        let mut depth = 0usize;
        while let Some(token) = self.peek(0) {
            match token.text {
                "(" => {
                    self.skip_pair("(", ")");
                    continue;
                }
                "<" => depth += 1,
                ">" | ">=" => depth -= 1,
                ";" | "{" => return,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
