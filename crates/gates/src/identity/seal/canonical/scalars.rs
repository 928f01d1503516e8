//! Strings, numbers and literals, read and written.

use memchr::memchr2;

use super::{Reader, Unreadable};

impl Reader<'_> {
    /// A string, written canonically; with `named`, unescaped into `names` too.
    pub(super) fn string(&mut self, named: bool) -> Result<(), Unreadable> {
        self.at += 1;
        self.out.push(b'"');
        loop {
            let rest = &self.text[self.at..];
            let Some(plain) = memchr2(b'"', b'\\', rest.as_bytes()) else {
                return Err(Unreadable::Syntax { at: self.text.len() });
            };
            let (plain, stop) = rest.split_at(plain);
            // Over all of them without stopping, which the compiler turns into a few wide instructions.
            if plain.bytes().fold(false, |found, byte| found | (byte < 0x20)) {
                let control = plain.bytes().take_while(|byte| *byte >= 0x20).count();
                return Err(Unreadable::Syntax { at: self.at + control });
            }
            self.out.extend_from_slice(plain.as_bytes());
            if named {
                self.names.push_str(plain);
            }
            self.at += plain.len() + 1;
            if stop.starts_with('"') {
                self.out.push(b'"');
                return Ok(());
            }
            let character = self.escape()?;
            self.write(character);
            if named {
                self.names.push(character);
            }
        }
    }

    /// What an escape stands for; its backslash has been passed.
    fn escape(&mut self) -> Result<char, Unreadable> {
        let character = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.wrong()),
        };
        self.at += 1;
        Ok(character)
    }

    fn unicode_escape(&mut self) -> Result<char, Unreadable> {
        let begun = self.at - 1;
        let lone = Unreadable::LoneSurrogate { at: begun };
        let first = self.hex()?;
        let scalar = match first {
            0xd800..=0xdbff => {
                if self.peek() != Some(b'\\') || self.text.as_bytes().get(self.at + 1) != Some(&b'u') {
                    return Err(lone);
                }
                self.at += 1;
                match self.hex()? {
                    second @ 0xdc00..=0xdfff => 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                    _ => return Err(lone),
                }
            }
            other => other,
        };
        char::from_u32(scalar).ok_or(lone)
    }

    /// The four digits after a `u`.
    fn hex(&mut self) -> Result<u32, Unreadable> {
        self.at += 1;
        let mut number = 0;
        for _ in 0..4 {
            let digit =
                self.peek().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(|| self.wrong())?;
            number = number << 4 | digit;
            self.at += 1;
        }
        Ok(number)
    }

    fn write(&mut self, character: char) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let short = match character {
            '"' => b'"',
            '\\' => b'\\',
            '\u{8}' => b'b',
            '\t' => b't',
            '\n' => b'n',
            '\u{c}' => b'f',
            '\r' => b'r',
            control if control < ' ' => {
                let low = HEX[control as usize & 15];
                self.out.extend_from_slice(&[b'\\', b'u', b'0', b'0', b'0' + (control as u8 >> 4), low]);
                return;
            }
            other => {
                self.out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                return;
            }
        };
        self.out.extend_from_slice(&[b'\\', short]);
    }

    /// A number, as it came.
    pub(in crate::identity::seal) fn number(&mut self) -> Result<(), Unreadable> {
        let from = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return Err(self.wrong()),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.out.extend_from_slice(&self.text.as_bytes()[from..self.at]);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Unreadable> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at > from { Ok(()) } else { Err(self.wrong()) }
    }

    pub(super) fn literal(&mut self, word: &str) -> Result<(), Unreadable> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.wrong());
        }
        self.at += word.len();
        self.out.extend_from_slice(word.as_bytes());
        Ok(())
    }

    /// An unescaped string that is not to be signed.
    pub(in crate::identity::seal) fn text(&mut self) -> Result<String, Unreadable> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong());
        }
        let (out, from) = (self.out.len(), self.names.len());
        self.string(true)?;
        self.out.truncate(out);
        Ok(self.names.split_off(from))
    }
}
