//! Searching for lines.

use std::{
    ffi::CStr,
    fs::File,
    io::{self, Read, Seek},
    os::fd::{AsFd, OwnedFd},
};

use aegis_core::config::HardLinks;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use super::{
    FileHits, Found, Line, Progress, Skipped,
    queue::Directory,
    walk::{Searcher, join},
};
use crate::files::{
    error::FileError,
    local::{READ, readable},
};

const MAX_PATTERN: usize = 64 << 10;
/// Bounds the memory of a compiled pattern, and with it the steps per byte in the worst case.
const MAX_COMPILED: usize = 4 << 20;
const MAX_LAZY_DFA: usize = 16 << 20;
/// Files up to this size are read and searched whole.
const SMALL: usize = 256 << 10;
/// The longest line that is searched.
const MAX_LINE_MEMORY: usize = 8 << 20;
/// The longest line that is shown.
const MAX_LINE_CHARACTERS: usize = 2000;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

#[derive(Debug)]
pub struct LinePattern {
    matcher: RegexMatcher,
}

impl LinePattern {
    pub fn parse(pattern: &str) -> Result<Self, FileError> {
        if pattern.len() > MAX_PATTERN {
            return Err(FileError::InvalidPattern(format!(
                "the pattern has {} bytes; {MAX_PATTERN} is the limit",
                pattern.len()
            )));
        }
        RegexMatcherBuilder::new()
            .multi_line(true)
            .unicode(true)
            .octal(false)
            .line_terminator(Some(b'\n'))
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_LAZY_DFA)
            .build(pattern)
            .map(|matcher| Self { matcher })
            .map_err(|error| FileError::InvalidPattern(explain(&error.to_string())))
    }
}

/// The gist of the parser's several lines, and what to do about it.
fn explain(error: &str) -> String {
    let gist = error.rsplit_once("error: ").map_or(error, |(_, gist)| gist).trim().replace('\n', " ");
    if gist.contains("size limit") {
        return format!(
            "the pattern is too big when compiled (the limit is {} MiB); use smaller repetition counts",
            MAX_COMPILED >> 20
        );
    }
    if gist.contains("\\n") && gist.contains("not allowed") {
        return "the pattern has a line break, and matching is line by line; search for one line of it"
            .into();
    }
    format!("{gist} (Rust regex syntax: no look-around, no back-references)")
}

pub(super) struct LineSearcher<'a> {
    matcher: RegexMatcher,
    /// For files in memory, whose NUL bytes have been looked for already.
    slices: grep_searcher::Searcher,
    readers: grep_searcher::Searcher,
    buffer: Vec<u8>,
    hard_links: HardLinks,
    progress: &'a Progress<'a>,
    files: Vec<FileHits>,
    searched: u64,
    skipped: Skipped,
    refused: Option<FileError>,
}

impl<'a> LineSearcher<'a> {
    pub(super) fn new(pattern: &LinePattern, hard_links: HardLinks, progress: &'a Progress<'a>) -> Self {
        let searcher = |binary: BinaryDetection| {
            SearcherBuilder::new()
                .line_number(true)
                .multi_line(false)
                .bom_sniffing(false)
                .heap_limit(Some(MAX_LINE_MEMORY))
                .binary_detection(binary)
                .build()
        };
        Self {
            matcher: pattern.matcher.clone(),
            slices: searcher(BinaryDetection::none()),
            readers: searcher(BinaryDetection::quit(0)),
            buffer: vec![0; SMALL],
            hard_links,
            progress,
            files: Vec::new(),
            searched: 0,
            skipped: Skipped::default(),
            refused: None,
        }
    }

    pub(super) fn report(self, found: &mut Found) {
        found.files.extend(self.files);
        found.searched += self.searched;
        found.skipped.add(&self.skipped);
    }

    /// Why the one file that was asked for could not be searched.
    pub(super) fn refusal(&mut self) -> Result<(), FileError> {
        self.refused.take().map_or(Ok(()), Err)
    }

    pub(super) fn search_open(&mut self, fd: OwnedFd, path: impl FnOnce() -> String) {
        match self.lines_of(fd) {
            Ok(lines) => {
                self.searched += 1;
                if !lines.is_empty() {
                    self.files.push(FileHits { path: path(), lines });
                }
            }
            Err(error) => {
                match &error {
                    FileError::HardLinked(_) => self.skipped.hard_linked += 1,
                    FileError::NotUtf8(_) => self.skipped.not_utf8 += 1,
                    // Became something else since its name was read.
                    FileError::NotARegularFile(_) | FileError::IsADirectory => {}
                    _ => self.skipped.unreadable += 1,
                }
                self.refused = Some(error);
            }
        }
    }

    fn lines_of(&mut self, fd: OwnedFd) -> Result<Vec<Line>, FileError> {
        let stat = readable(fd.as_fd(), self.hard_links)?;
        let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
        if size < SMALL
            && let Some(length) = read_whole(&fd, &mut self.buffer, size)?
        {
            return self.slice_lines(length);
        }
        self.reader_lines(File::from(fd))
    }

    fn slice_lines(&mut self, length: usize) -> Result<Vec<Line>, FileError> {
        let bytes = &self.buffer[..length];
        if memchr::memchr(0, bytes).is_some() {
            self.skipped.binary += 1;
            return Ok(Vec::new());
        }
        let mut hits = Hits::new(self.progress, Some(bytes));
        let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        self.slices.search_slice(&self.matcher, text, &mut hits)?;
        hits.lines()
    }

    fn reader_lines(&mut self, mut file: File) -> Result<Vec<Line>, FileError> {
        file.rewind()?;
        let mut hits = Hits::new(self.progress, None);
        let reader = Watched { file, progress: self.progress };
        let outcome = self.readers.search_reader(&self.matcher, reader, &mut hits);
        if hits.binary {
            self.progress.take_back(hits.lines.len());
            self.skipped.binary += 1;
            return Ok(Vec::new());
        }
        match outcome {
            // The searcher's own error, which has no number: a line did not fit.
            Err(error) if error.raw_os_error().is_none() => self.skipped.long_lines += 1,
            outcome => outcome?,
        }
        hits.lines()
    }
}

impl Searcher for LineSearcher<'_> {
    fn wants(&mut self, _: &Directory, _: &CStr) -> bool {
        true
    }

    fn search(&mut self, directory: &Directory, name: &CStr) {
        match rustix::fs::openat(&directory.fd, name, READ | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => self.search_open(fd, || {
                String::from_utf8_lossy(&join(&directory.path, name.to_bytes())).into_owned()
            }),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => {}
            Err(_) => self.skipped.unreadable += 1,
        }
    }
}

/// Reads a file of the expected size into the buffer; `None` when it has grown too large for it.
fn read_whole(fd: &OwnedFd, buffer: &mut [u8], expected: usize) -> Result<Option<usize>, Errno> {
    let mut length = 0;
    while length < buffer.len() {
        match rustix::io::read(fd, &mut buffer[length..]) {
            Ok(0) => return Ok(Some(length)),
            Ok(read) => {
                length += read;
                // Less than there was room for, and just what was expected: the end.
                if length == expected {
                    return Ok(Some(length));
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Ends early when the search has stopped.
struct Watched<'a> {
    file: File,
    progress: &'a Progress<'a>,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.progress.stopped() { Ok(0) } else { self.file.read(buffer) }
    }
}

struct Hits<'a> {
    progress: &'a Progress<'a>,
    /// The whole file, where it is in memory: at the first hit it must prove to be UTF-8. Of larger files only the
    /// lines with hits must.
    whole: Option<&'a [u8]>,
    lines: Vec<Line>,
    binary: bool,
    not_utf8: Option<usize>,
}

impl<'a> Hits<'a> {
    fn new(progress: &'a Progress<'a>, whole: Option<&'a [u8]>) -> Self {
        Self { progress, whole, lines: Vec::new(), binary: false, not_utf8: None }
    }

    fn lines(self) -> Result<Vec<Line>, FileError> {
        match self.not_utf8 {
            None => Ok(self.lines),
            Some(offset) => {
                self.progress.take_back(self.lines.len());
                Err(FileError::NotUtf8(offset))
            }
        }
    }
}

impl Sink for Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &grep_searcher::Searcher, hit: &SinkMatch<'_>) -> io::Result<bool> {
        if let Some(whole) = self.whole.take()
            && let Err(error) = std::str::from_utf8(whole)
        {
            self.not_utf8 = Some(error.valid_up_to());
            return Ok(false);
        }
        let Ok(text) = std::str::from_utf8(hit.bytes()) else {
            self.not_utf8 = Some(usize::try_from(hit.absolute_byte_offset()).unwrap_or(usize::MAX));
            return Ok(false);
        };
        if !self.progress.wants_hit() {
            return Ok(false);
        }
        self.lines.push(Line { number: hit.line_number().unwrap_or_default(), text: shown(text) });
        Ok(true)
    }

    fn binary_data(&mut self, _: &grep_searcher::Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }

    fn finish(&mut self, _: &grep_searcher::Searcher, _: &SinkFinish) -> io::Result<()> {
        Ok(())
    }
}

fn shown(line: &str) -> String {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.len() <= MAX_LINE_CHARACTERS {
        return line.to_owned();
    }
    match line.char_indices().nth(MAX_LINE_CHARACTERS) {
        None => line.to_owned(),
        Some((end, _)) => format!("{} […line cut]", &line[..end]),
    }
}
