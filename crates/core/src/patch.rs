//! Unified diffs as people and git write them, read once: policy looks at the names in one, the files route applies it.

use std::fmt;

/// Bounds on what one patch may hold.
pub const MAX_PATCH_BYTES: usize = 4 << 20;
const MAX_FILES: usize = 256;
const MAX_HUNKS: usize = 10_000;

/// A patch of one file or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    pub files: Vec<FilePatch>,
}

/// What becomes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The file it starts from; `None` makes a new one.
    pub old: Option<String>,
    /// Where the result goes; `None` deletes.
    pub new: Option<String>,
    pub hunks: Vec<Hunk>,
    /// The patch wants a new file to be executable.
    pub executable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Counted from one; for a hunk that takes nothing away, the line it comes after.
    pub old_start: usize,
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    Context,
    Removed,
    Added,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub sign: Sign,
    /// With its line end, unless the patch says that the file ends without one.
    pub text: String,
}

/// Why a text can't be used as a patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPatch {
    #[error("it is longer than {MAX_PATCH_BYTES} bytes; make several patches of it")]
    TooLong,
    #[error(
        "it names more than {MAX_FILES} files, or has more than {MAX_HUNKS} hunks; make several patches of it"
    )]
    TooMany,
    #[error(
        "it has no hunk: a unified diff has `--- old`, `+++ new` and `@@ -line,count +line,count @@` before the lines"
    )]
    Empty,
    #[error("line {line}: it is a binary patch, and only text is patched; write the file as a whole")]
    Binary { line: usize },
    #[error("line {line}: {problem}")]
    Unreadable { line: usize, problem: &'static str },
    #[error("line {line}: {problem}, which is not done by patches here")]
    Unsupported { line: usize, problem: &'static str },
}

impl Patch {
    pub fn parse(text: &str) -> Result<Self, BadPatch> {
        if text.len() > MAX_PATCH_BYTES {
            return Err(BadPatch::TooLong);
        }
        let mut reader = Reader::new(text);
        while reader.step()? {}
        reader.close()?;
        let files = reader.files;
        if files.is_empty() {
            return Err(BadPatch::Empty);
        }
        Ok(Self { files })
    }
}

impl FilePatch {
    /// The path or both paths that it reads, makes, changes or removes, as they are written there.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let new = self.new.as_deref().filter(|new| self.old.as_deref() != Some(new));
        self.old.as_deref().into_iter().chain(new)
    }

    /// Whether a file is gone from where it was: renamed or deleted.
    pub fn moves(&self) -> bool {
        self.old.is_some() && self.old != self.new
    }

    /// The path that the patch is about, for people.
    pub fn path(&self) -> &str {
        self.new.as_deref().or(self.old.as_deref()).unwrap_or_default()
    }
}

impl fmt::Display for Hunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |unlike: Sign| self.lines.iter().filter(|line| line.sign != unlike).count();
        write!(f, "@@ -{},{} +{} @@", self.old_start, count(Sign::Added), count(Sign::Removed))
    }
}

/// What has been read of the file that is being described.
#[derive(Debug, Default)]
struct Section {
    line: usize,
    /// From `diff --git`, which names both ends even where nothing else does.
    git: bool,
    old: Option<Name>,
    new: Option<Name>,
    renamed: bool,
    created: bool,
    deleted: bool,
    executable: bool,
    mode_changed: bool,
    hunks: Vec<Hunk>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Nothing,
    File(String),
}

struct Reader<'t> {
    lines: std::iter::Peekable<std::iter::Enumerate<std::str::SplitInclusive<'t, char>>>,
    section: Option<Section>,
    files: Vec<FilePatch>,
    hunks: usize,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            lines: text.split_inclusive('\n').enumerate().peekable(),
            section: None,
            files: Vec::new(),
            hunks: 0,
        }
    }

    /// Reads one line of a header, or one hunk. `false` at the end.
    fn step(&mut self) -> Result<bool, BadPatch> {
        let Some((index, raw)) = self.lines.next() else { return Ok(false) };
        let (line, text) = (index + 1, raw.trim_end_matches(['\n', '\r']));
        if let Some(rest) = text.strip_prefix("diff --git ") {
            self.close()?;
            let (old, new) = git_names(rest);
            self.section = Some(Section { line, git: true, old, new, ..Section::default() });
        } else if let Some(rest) = text.strip_prefix("--- ") {
            let Some(new) = self.following("+++ ") else { return Ok(true) };
            self.names(line, rest, &new)?;
        } else if text.starts_with("@@ ") {
            self.hunk(line, text)?;
        } else if text == "GIT binary patch"
            || (text.starts_with("Binary files ") && text.ends_with(" differ"))
        {
            return Err(BadPatch::Binary { line });
        } else if let Some(section) = self.section.as_mut().filter(|section| section.git) {
            section.extended(line, text)?;
        }
        Ok(true)
    }

    /// What follows `start` in the next line, if that begins with it.
    fn following(&mut self, start: &str) -> Option<String> {
        let (_, next) = self.lines.peek()?;
        let rest = next.strip_prefix(start)?.trim_end_matches(['\n', '\r']).to_owned();
        self.lines.next();
        Some(rest)
    }

    fn names(&mut self, line: usize, old: &str, new: &str) -> Result<(), BadPatch> {
        let unreadable = |problem| BadPatch::Unreadable { line, problem };
        let (old, new) = (name(old).ok_or(unreadable(QUOTES))?, name(new).ok_or(unreadable(QUOTES))?);
        let (old, new) = unprefixed(old, new);
        match &mut self.section {
            Some(section) if section.git && section.hunks.is_empty() => {
                section.old = Some(old);
                section.new = Some(new);
            }
            _ => {
                self.close()?;
                self.section = Some(Section { line, old: Some(old), new: Some(new), ..Section::default() });
            }
        }
        Ok(())
    }

    fn hunk(&mut self, line: usize, header: &str) -> Result<(), BadPatch> {
        let unreadable = |problem| BadPatch::Unreadable { line, problem };
        let section =
            self.section.as_mut().ok_or(unreadable("a hunk before `---` and `+++` name its file"))?;
        let (old_start, mut old, mut new) =
            counts(header).ok_or(unreadable("a hunk begins with `@@ -line,count +line,count @@`"))?;
        self.hunks += 1;
        if self.hunks > MAX_HUNKS {
            return Err(BadPatch::TooMany);
        }
        let mut lines: Vec<Line> = Vec::new();
        while old > 0 || new > 0 {
            let Some((_, raw)) = self.lines.next() else {
                return Err(unreadable("the hunk ends before it has as many lines as it says"));
            };
            if raw.starts_with('\\') {
                ends_here(lines.last_mut());
                continue;
            }
            // Editors like to take the one blank of an empty context line away.
            let (sign, text) = match raw.as_bytes().first() {
                Some(b' ') => (Sign::Context, &raw[1..]),
                Some(b'-') => (Sign::Removed, &raw[1..]),
                Some(b'+') => (Sign::Added, &raw[1..]),
                Some(b'\n' | b'\r') => (Sign::Context, raw),
                _ => {
                    return Err(unreadable(
                        "a line of the hunk begins with none of blank, `+`, `-` and `\\`",
                    ));
                }
            };
            let (takes, gives) = (sign != Sign::Added, sign != Sign::Removed);
            if (takes && old == 0) || (gives && new == 0) {
                return Err(unreadable("the hunk has more lines than it says"));
            }
            old -= usize::from(takes);
            new -= usize::from(gives);
            // The last line of the whole text may have lost its line end on the way here.
            let text = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
            lines.push(Line { sign, text });
        }
        if self.lines.peek().is_some_and(|(_, next)| next.starts_with('\\')) {
            self.lines.next();
            ends_here(lines.last_mut());
        }
        if lines.is_empty() {
            return Err(unreadable("a hunk without lines"));
        }
        section.hunks.push(Hunk { old_start, lines });
        Ok(())
    }

    /// Ends the description of one file.
    fn close(&mut self) -> Result<(), BadPatch> {
        let Some(section) = self.section.take() else { return Ok(()) };
        if self.files.len() == MAX_FILES {
            return Err(BadPatch::TooMany);
        }
        self.files.push(section.finish()?);
        Ok(())
    }
}

impl Section {
    /// A line of git between `diff --git` and the hunks.
    fn extended(&mut self, line: usize, text: &str) -> Result<(), BadPatch> {
        let unsupported = |problem| Err(BadPatch::Unsupported { line, problem });
        let file = |text: &str| {
            let name = unquoted(text).ok_or(BadPatch::Unreadable { line, problem: QUOTES })?;
            Ok(Some(Name::File(name)))
        };
        if let Some(rest) = text.strip_prefix("rename from ") {
            (self.old, self.renamed) = (file(rest)?, true);
        } else if let Some(rest) = text.strip_prefix("rename to ") {
            (self.new, self.renamed) = (file(rest)?, true);
        } else if let Some(mode) = text.strip_prefix("new file mode ") {
            self.created = true;
            match mode.trim() {
                "100644" => {}
                "100755" => self.executable = true,
                _ => return unsupported("it makes a symbolic link or a submodule"),
            }
        } else if let Some(mode) = text.strip_prefix("deleted file mode ") {
            self.deleted = true;
            if !mode.trim().starts_with("100") {
                return unsupported("it removes a symbolic link or a submodule");
            }
        } else if text.starts_with("old mode ") || text.starts_with("new mode ") {
            self.mode_changed = true;
        } else if text.starts_with("copy from ") || text.starts_with("copy to ") {
            return unsupported("it copies a file");
        }
        Ok(())
    }

    fn finish(self) -> Result<FilePatch, BadPatch> {
        let line = self.line;
        let unreadable = |problem| BadPatch::Unreadable { line, problem };
        if self.mode_changed {
            return Err(BadPatch::Unsupported { line, problem: "it changes the mode of a file" });
        }
        let path = |name: Option<Name>, nothing: bool| match name {
            _ if nothing => Ok(None),
            Some(Name::Nothing) => Ok(None),
            Some(Name::File(path)) if path.is_empty() => Err(unreadable("a file without a name")),
            Some(Name::File(path)) => Ok(Some(path)),
            None => Err(unreadable("the names of the file can't be made out")),
        };
        let (old, new) = (path(self.old, self.created)?, path(self.new, self.deleted)?);
        if old.is_none() && new.is_none() {
            return Err(unreadable("both names are /dev/null"));
        }
        let empty_is_enough = self.renamed || self.created || self.deleted;
        if self.hunks.is_empty() && !empty_is_enough {
            return Err(unreadable("the file is named and nothing is changed in it"));
        }
        if !self.renamed && old.is_some() && new.is_some() && old != new && self.git {
            return Err(unreadable("the two names differ and nothing says that the file is renamed"));
        }
        // Without git, two names are two spellings of one file: the new one is what people mean.
        let old = if !self.renamed && old.is_some() && new.is_some() { new.clone() } else { old };
        Ok(FilePatch { old, new, hunks: self.hunks, executable: self.executable })
    }
}

const QUOTES: &str = "a quoted name that can't be read";

fn ends_here(line: Option<&mut Line>) {
    if let Some(line) = line
        && line.text.ends_with('\n')
    {
        line.text.pop();
    }
}

/// `@@ -start,count +start,count @@`: old start, old count, new count.
fn counts(header: &str) -> Option<(usize, usize, usize)> {
    let (ranges, _) = header.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let range = |text: &str| {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        let (start, count) = (start.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
        Some((usize::try_from(start).ok()?, usize::try_from(count).ok()?))
    };
    let ((start, old), (_, new)) = (range(old)?, range(new)?);
    Some((start, old, new))
}

/// A name after `---` or `+++`: up to a tab, after which some tools put a time.
fn name(text: &str) -> Option<Name> {
    let text = if text.starts_with('"') { text } else { text.split('\t').next().unwrap_or(text).trim_end() };
    let text = unquoted(text)?;
    Some(if text == "/dev/null" { Name::Nothing } else { Name::File(text) })
}

/// Without git's `a/` and `b/`, where both sides that there are have them.
fn unprefixed(old: Name, new: Name) -> (Name, Name) {
    let has = |name: &Name, prefix: &str| match name {
        Name::Nothing => true,
        Name::File(path) => path.starts_with(prefix),
    };
    if !has(&old, "a/") || !has(&new, "b/") {
        return (old, new);
    }
    let cut = |name: Name| match name {
        Name::File(path) => Name::File(path[2..].to_owned()),
        Name::Nothing => Name::Nothing,
    };
    (cut(old), cut(new))
}

/// `a/one b/one`, where both are the same name; a rename says its names in lines of its own.
fn git_names(text: &str) -> (Option<Name>, Option<Name>) {
    let both = |path: String| (Some(Name::File(path.clone())), Some(Name::File(path)));
    if let Some(rest) = text.strip_prefix("\"a/") {
        let Some((quoted, _)) = rest.split_once("\" ") else { return (None, None) };
        return unquoted(&format!("\"{quoted}\"")).map_or((None, None), both);
    }
    // The name may hold blanks, so the middle is where both halves are alike.
    let Some(rest) = text.strip_prefix("a/") else { return (None, None) };
    let Some(length) = rest.len().checked_sub(" b/".len()).map(|length| length / 2) else {
        return (None, None);
    };
    match (rest.get(..length), rest.get(length..)) {
        (Some(old), Some(new)) if new.strip_prefix(" b/") == Some(old) => both(old.to_owned()),
        _ => (None, None),
    }
}

/// C quotes, as git writes names with unusual characters.
fn unquoted(text: &str) -> Option<String> {
    let Some(inner) = text.strip_prefix('"') else { return Some(text.to_owned()) };
    let inner = inner.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'a' => 7,
            b'b' => 8,
            b'v' => 11,
            b'f' => 12,
            byte @ (b'"' | b'\\') => byte,
            first @ b'0'..=b'3' => {
                let mut value = first - b'0';
                for _ in 0..2 {
                    let digit = rest.next().filter(|digit| (b'0'..=b'7').contains(digit))?;
                    value = value * 8 + (digit - b'0');
                }
                value
            }
            _ => return None,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
