//! C++ source cut into just enough tokens to find declarations in: names, punctuation, literals. Comments
//! vanish; so do preprocessor lines, but for the line markers of preprocessed text, which say where a token
//! comes from.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A name or keyword.
    Name,
    /// A string, character or number.
    Literal,
    /// One character, or one of `::`, `->`, `<<`, `<=`, `>=`.
    Punct,
}

/// A token and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) text: &'a str,
    /// Byte offset in the text.
    pub(crate) at: usize,
    /// As the line markers say, else counted from 1.
    pub(crate) line: u32,
    /// Index into the tokenizer's `files`.
    pub(crate) file: usize,
}

impl Token<'_> {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.kind != TokenKind::Literal && self.text == text
    }
}

/// The tokens of a text.
pub(crate) struct Tokens<'a> {
    pub(crate) list: Vec<Token<'a>>,
    /// Files named by line markers; the first is the text itself, unnamed.
    pub(crate) files: Vec<String>,
}

/// Cuts `text`.
pub(crate) fn tokenize(text: &str) -> Tokens<'_> {
    let mut cutter =
        Cutter { text, bytes: text.as_bytes(), at: 0, line: 1, file: 0, files: vec![String::new()] };
    let mut list = Vec::new();
    while let Some(token) = cutter.next() {
        list.push(token);
    }
    Tokens { list, files: cutter.files }
}

struct Cutter<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
    file: usize,
    files: Vec<String>,
}

fn starts_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn continues_name(byte: u8) -> bool {
    starts_name(byte) || byte.is_ascii_digit()
}

impl<'a> Cutter<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn advance_to(&mut self, end: usize) {
        let end = end.min(self.bytes.len());
        self.line += self.bytes[self.at..end].iter().filter(|&&byte| byte == b'\n').count() as u32;
        self.at = end;
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let mut line_start = self.at == 0 || self.bytes[self.at - 1] == b'\n';
        loop {
            match self.peek(0) {
                0 if self.at >= self.bytes.len() => return None,
                b'\n' => {
                    self.advance_to(self.at + 1);
                    line_start = true;
                }
                byte if byte.is_ascii_whitespace() || byte == 0 => self.at += 1,
                b'\\' if self.peek(1) == b'\n' => self.advance_to(self.at + 2),
                b'/' if self.peek(1) == b'/' => self.skip_line(),
                b'/' if self.peek(1) == b'*' => {
                    let rest = &self.text[self.at + 2..];
                    let end = rest.find("*/").map_or(self.bytes.len(), |at| self.at + 2 + at + 2);
                    self.advance_to(end);
                }
                b'#' if line_start => self.directive(),
                _ => break,
            }
        }
        let (start, line) = (self.at, self.line);
        let first = self.peek(0);
        let kind = if starts_name(first) {
            self.name_or_prefixed_literal()
        } else if first.is_ascii_digit() || first == b'.' && self.peek(1).is_ascii_digit() {
            self.number();
            TokenKind::Literal
        } else if first == b'"' || first == b'\'' {
            self.quoted(first);
            TokenKind::Literal
        } else {
            let two = self.bytes.get(start..start + 2).unwrap_or_default();
            self.at += if matches!(two, b"::" | b"->" | b"<<" | b"<=" | b">=") { 2 } else { 1 };
            TokenKind::Punct
        };
        Some(Token { kind, text: &self.text[start..self.at], at: start, line, file: self.file })
    }

    /// To the end of a logical line: a backslash carries on.
    fn skip_line(&mut self) {
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            let carried = self.peek(0) == b'\\' && self.peek(1) == b'\n';
            self.advance_to(self.at + if carried { 2 } else { 1 });
        }
    }

    /// `# 12 "file.h" 2` (or `#line 12 "file.h"`) sets where the next line is; anything else is skipped.
    fn directive(&mut self) {
        let start = self.at;
        self.skip_line();
        let text = self.text[start + 1..self.at].trim_start();
        let text = text.strip_prefix("line").unwrap_or(text).trim_start();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let Ok(number) = text[..digits].parse::<u32>() else { return };
        // The newline that ends this directive counts one up.
        self.line = number.saturating_sub(1);
        let name = text[digits..].trim_start();
        if let Some(name) = name.strip_prefix('"').and_then(|name| name.rfind('"').map(|end| &name[..end])) {
            let name = name.replace("\\\"", "\"").replace("\\\\", "\\");
            self.file = self.files.iter().position(|file| *file == name).unwrap_or_else(|| {
                self.files.push(name);
                self.files.len() - 1
            });
        }
    }

    fn name_or_prefixed_literal(&mut self) -> TokenKind {
        let start = self.at;
        while continues_name(self.peek(0)) {
            self.at += 1;
        }
        let name = &self.text[start..self.at];
        match (name, self.peek(0)) {
            ("R" | "LR" | "uR" | "UR" | "u8R", b'"') => self.raw_string(),
            ("L" | "u" | "U" | "u8", quote @ (b'"' | b'\'')) => self.quoted(quote),
            _ => return TokenKind::Name,
        }
        TokenKind::Literal
    }

    /// A number as the preprocessor sees it: digits, names, dots, signs after an exponent, digit separators.
    fn number(&mut self) {
        loop {
            let byte = self.peek(0);
            let exponent = matches!(byte, b'e' | b'E' | b'p' | b'P') && matches!(self.peek(1), b'+' | b'-');
            let separator = byte == b'\'' && self.peek(1).is_ascii_alphanumeric();
            if exponent || separator {
                self.at += 2;
            } else if continues_name(byte) || byte == b'.' {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn quoted(&mut self, quote: u8) {
        self.at += 1;
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\\' => self.advance_to(self.at + 2),
                // Unterminated: the compiler will say so.
                b'\n' => return,
                byte => {
                    self.at += 1;
                    if byte == quote {
                        return;
                    }
                }
            }
        }
        self.at = self.at.min(self.bytes.len());
    }

    fn raw_string(&mut self) {
        let rest = &self.text[self.at + 1..];
        let end = rest.find('(').and_then(|open| {
            let close = format!("){}\"", &rest[..open]);
            rest[open..].find(&close).map(|at| self.at + 1 + open + at + close.len())
        });
        self.advance_to(end.unwrap_or(self.bytes.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokenize(source).list.iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_directives_vanish() {
        let source = "a // b\\\n still b\n#define X \\\n  y\n/* c\n d */ e # f\n";
        assert_eq!(texts(source), ["a", "e", "#", "f"]);
        assert_eq!(texts("a /* never closed"), ["a"]);
        assert_eq!(texts("a // no newline"), ["a"]);
    }

    #[test]
    fn literals_hide_what_they_hold() {
        let source = r##"x = "a \" // {" + '"' + R"q(__global__ " )" )q" + u8"é{" + L'{' + 1'000.5e+3f;"##;
        let tokens = tokenize(source).list;
        let literals: Vec<_> =
            tokens.iter().filter(|t| t.kind == TokenKind::Literal).map(|t| t.text).collect();
        assert_eq!(
            literals,
            [r#""a \" // {""#, "'\"'", r#"R"q(__global__ " )" )q""#, "u8\"é{\"", "L'{'", "1'000.5e+3f"]
        );
        assert!(!tokens.iter().any(|token| token.is("{") || token.is("__global__")));
        for cut in ["\"", "'", "R\"(", "R\"", "\"\\", "0x", "é", "\\", "#", "1'", "u8R\"x("] {
            tokenize(cut);
        }
    }

    #[test]
    fn punctuation() {
        assert_eq!(
            texts("a::b->c<<d>>e<=f"),
            ["a", "::", "b", "->", "c", "<<", "d", ">", ">", "e", "<=", "f"]
        );
    }

    #[test]
    fn lines_follow_the_markers() {
        let tokens = tokenize("a\n# 7 \"x.h\" 1 3\nb\nc\n#line 3 \"k.cu\"\n\nd R\"(\n\n)\" e");
        let places: Vec<_> =
            tokens.list.iter().map(|t| (t.text, t.line, tokens.files[t.file].as_str())).collect();
        assert_eq!(places[0], ("a", 1, ""));
        assert_eq!(places[1], ("b", 7, "x.h"));
        assert_eq!(places[2], ("c", 8, "x.h"));
        assert_eq!(places[3], ("d", 4, "k.cu"));
        assert_eq!(places[5], ("e", 6, "k.cu"));
    }
}
