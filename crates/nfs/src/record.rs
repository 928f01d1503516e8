//! Records on a stream (RFC 5531, section 11): fragments, each with its length, the last one marked.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::MAX_RECORD;

const LAST: u32 = 1 << 31;
/// No client needs more, and empty ones could be sent for ever.
const MAX_FRAGMENTS: usize = 64;

/// The next record; `None` at the end of the stream. An error ends the conversation: where the next record would begin
/// can't be known.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Bytes>> {
    let mut record = BytesMut::new();
    for fragment in 0..MAX_FRAGMENTS {
        let header = match stream.read_u32().await {
            Ok(header) => header,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && fragment == 0 => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = usize::try_from(header & !LAST).unwrap_or(usize::MAX);
        if length > MAX_RECORD - record.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record longer than any request"));
        }
        // Room grows with what really comes, not with what was announced.
        let mut rest = length;
        while rest > 0 {
            let read = (&mut *stream).take(rest as u64).read_buf(&mut record).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            rest -= read;
        }
        if header & LAST != 0 {
            return Ok(Some(record.freeze()));
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "a record in too many fragments"))
}

/// Writes one record as one fragment.
pub async fn write(stream: &mut (impl AsyncWrite + Unpin), record: &[u8]) -> io::Result<()> {
    let length = u32::try_from(record.len()).ok().filter(|length| *length < LAST);
    let length = length.ok_or_else(|| io::Error::other("a record too long to be sent"))?;
    stream.write_u32(length | LAST).await?;
    stream.write_all(record).await
}
