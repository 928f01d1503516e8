use std::time::Duration;

/// What a server can make us hold or wait for.
#[derive(Debug, Clone)]
pub struct Limits {
    /// One message, one event, one body.
    pub message: usize,
    /// Requests that wait for an answer at once.
    pub pending: usize,
    /// Requests of the server's that are in work at once.
    pub questions: usize,
    /// Pages of one list.
    pub pages: usize,
    /// Entries of one list, over all its pages.
    pub entries: usize,
    /// From the first byte to the end of the handshake.
    pub handshake: Duration,
    /// How long `server/discover` may stay unanswered before `initialize` is tried as well.
    pub probe: Duration,
    /// Messages in a row that are no messages, before the connection is given up.
    pub garbage: usize,
    /// Lines of a child's standard error that are passed on within a second.
    pub stderr_lines: u32,
    pub stderr_line: usize,
    /// How long a child may take to go once its input is closed.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 32 << 20,
            pending: 4096,
            questions: 16,
            pages: 64,
            entries: 4096,
            handshake: Duration::from_secs(30),
            probe: Duration::from_secs(3),
            garbage: 1000,
            stderr_lines: 50,
            stderr_line: 2048,
            farewell: Duration::from_secs(2),
        }
    }
}
