//! A client that says what it is told, true or not.

mod parts;

use aegis_nfs::{
    gateway::MadeExport,
    record,
    xdr::{Decoder, Encoder},
};
use bytes::Bytes;
use tokio::{io::AsyncWriteExt, net::TcpStream};

pub(crate) use parts::{Attributes, Set, says};
use parts::{after, attributes, change, made, write_set};

pub(crate) struct Wire {
    stream: TcpStream,
    xid: u32,
    pub(crate) root: Bytes,
}

pub(crate) type Said<T> = Result<T, u32>;

/// Name, cookie, and what there is to know of an entry.
pub(crate) type Entry = (String, u64, Option<(Attributes, Bytes)>);

impl Wire {
    pub(crate) async fn connect(export: &MadeExport) -> Self {
        let stream = TcpStream::connect(export.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, xid: 0, root: Bytes::new() }
    }

    pub(crate) async fn mount(export: &MadeExport) -> Self {
        let mut wire = Self::connect(export).await;
        wire.root = wire.mnt(&export.mount_path).await.unwrap();
        wire
    }

    pub(crate) async fn send(&mut self, record: &[u8]) {
        record::write(&mut self.stream, record).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        // The other side may have had enough.
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn receive(&mut self) -> Option<Bytes> {
        record::read(&mut self.stream).await.ok().flatten()
    }

    /// A whole call, and the result after the envelope; the accept state when it is not a success.
    pub(crate) async fn call(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: Encoder,
    ) -> Result<Decoder, u32> {
        self.xid += 1;
        let mut call = Encoder::default();
        call.word(self.xid).word(0).word(2).word(program).word(3).word(procedure);
        // AUTH_SYS, as root.
        let mut credential = Encoder::default();
        credential.word(1).opaque(b"machine").word(0).word(0).word(0);
        call.word(1).opaque(&credential.into_bytes()).word(0).opaque(&[]);
        let mut record = call.into_bytes();
        record.extend(arguments.into_bytes());
        self.send(&record).await;
        let mut answer = Decoder::new(self.receive().await.expect("an answer"));
        assert_eq!(answer.word().unwrap(), self.xid);
        assert_eq!(answer.word().unwrap(), 1);
        assert_eq!(answer.word().unwrap(), 0, "denied");
        answer.word().unwrap();
        answer.opaque(400).unwrap();
        match answer.word().unwrap() {
            0 => Ok(answer),
            state => Err(state),
        }
    }

    async fn nfs(&mut self, procedure: u32, write: impl FnOnce(&mut Encoder)) -> Said<Decoder> {
        let mut arguments = Encoder::default();
        write(&mut arguments);
        let mut result = self.call(100_003, procedure, arguments).await.expect("an accepted call");
        match result.word().unwrap() {
            0 => Ok(result),
            status => Err(status),
        }
    }

    pub(crate) async fn mnt(&mut self, path: &str) -> Said<Bytes> {
        let mut arguments = Encoder::default();
        arguments.opaque(path.as_bytes());
        let mut result = self.call(100_005, 1, arguments).await.unwrap();
        match result.word().unwrap() {
            0 => Ok(result.opaque(64).unwrap()),
            status => Err(status),
        }
    }

    pub(crate) async fn getattr(&mut self, handle: &[u8]) -> Said<Attributes> {
        self.nfs(1, |a| {
            a.opaque(handle);
        })
        .await
        .map(|mut d| attributes(&mut d))
    }

    pub(crate) async fn setattr(&mut self, handle: &[u8], set: Set, guard: Option<(u32, u32)>) -> Said<()> {
        let written = |a: &mut Encoder| {
            a.opaque(handle);
            write_set(a, &set);
            a.optional(guard, |a, (seconds, nanoseconds)| {
                a.word(seconds).word(nanoseconds);
            });
        };
        self.nfs(2, written).await.map(drop)
    }

    pub(crate) async fn lookup(&mut self, directory: &[u8], name: &str) -> Said<Bytes> {
        let mut result = self
            .nfs(3, |a| {
                a.opaque(directory).opaque(name.as_bytes());
            })
            .await?;
        Ok(result.opaque(64).unwrap())
    }

    /// Down from the root.
    pub(crate) async fn walk(&mut self, path: &str) -> Said<Bytes> {
        let mut at = self.root.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = self.lookup(&at, name).await?;
        }
        Ok(at)
    }

    pub(crate) async fn access(&mut self, handle: &[u8], wanted: u32) -> Said<u32> {
        let mut result = self
            .nfs(4, |a| {
                a.opaque(handle).word(wanted);
            })
            .await?;
        after(&mut result);
        Ok(result.word().unwrap())
    }

    pub(crate) async fn readlink(&mut self, handle: &[u8]) -> Said<Bytes> {
        let mut result = self
            .nfs(5, |a| {
                a.opaque(handle);
            })
            .await?;
        after(&mut result);
        Ok(result.opaque(4096).unwrap())
    }

    pub(crate) async fn read(&mut self, handle: &[u8], offset: u64, count: u32) -> Said<(Bytes, bool)> {
        let mut result = self
            .nfs(6, |a| {
                a.opaque(handle).double(offset).word(count);
            })
            .await?;
        after(&mut result);
        let count = result.word().unwrap();
        let end = result.flag().unwrap();
        let data = result.opaque(2 << 20).unwrap();
        assert_eq!(data.len(), count as usize);
        Ok((data, end))
    }

    pub(crate) async fn read_all(&mut self, handle: &[u8]) -> Said<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let (data, end) = self.read(handle, all.len() as u64, 64 << 10).await?;
            all.extend(&data);
            if end {
                return Ok(all);
            }
        }
    }

    /// With how stable it became and the verifier.
    pub(crate) async fn write(
        &mut self,
        handle: &[u8],
        offset: u64,
        stable: u32,
        data: &[u8],
    ) -> Said<(u32, u64)> {
        let count = u32::try_from(data.len()).unwrap();
        let written = |a: &mut Encoder| {
            a.opaque(handle).double(offset).word(count).word(stable).opaque(data);
        };
        let mut result = self.nfs(7, written).await?;
        change(&mut result);
        assert_eq!(result.word().unwrap(), count);
        Ok((result.word().unwrap(), result.double().unwrap()))
    }

    pub(crate) async fn create(&mut self, directory: &[u8], name: &str, how: u32, set: Set) -> Said<Bytes> {
        let written = |a: &mut Encoder| {
            a.opaque(directory).opaque(name.as_bytes()).word(how);
            write_set(a, &set);
        };
        made(self.nfs(8, written).await?)
    }

    pub(crate) async fn create_exclusive(
        &mut self,
        directory: &[u8],
        name: &str,
        verifier: u64,
    ) -> Said<Bytes> {
        let written = |a: &mut Encoder| {
            a.opaque(directory).opaque(name.as_bytes()).word(2).double(verifier);
        };
        made(self.nfs(8, written).await?)
    }

    pub(crate) async fn mkdir(&mut self, directory: &[u8], name: &str) -> Said<Bytes> {
        let written = |a: &mut Encoder| {
            a.opaque(directory).opaque(name.as_bytes());
            write_set(a, &Set { mode: Some(0o755), ..Set::default() });
        };
        made(self.nfs(9, written).await?)
    }

    pub(crate) async fn symlink(&mut self, directory: &[u8], name: &str, target: &str) -> Said<Bytes> {
        let written = |a: &mut Encoder| {
            a.opaque(directory).opaque(name.as_bytes());
            write_set(a, &Set::default());
            a.opaque(target.as_bytes());
        };
        made(self.nfs(10, written).await?)
    }

    pub(crate) async fn mknod(&mut self, directory: &[u8], name: &str) -> Said<()> {
        let written = |a: &mut Encoder| {
            a.opaque(directory).opaque(name.as_bytes()).word(7).word(0);
        };
        self.nfs(11, written).await.map(drop)
    }

    pub(crate) async fn remove(&mut self, directory: &[u8], name: &str) -> Said<()> {
        self.nfs(12, |a| {
            a.opaque(directory).opaque(name.as_bytes());
        })
        .await
        .map(drop)
    }

    pub(crate) async fn rmdir(&mut self, directory: &[u8], name: &str) -> Said<()> {
        self.nfs(13, |a| {
            a.opaque(directory).opaque(name.as_bytes());
        })
        .await
        .map(drop)
    }

    pub(crate) async fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Said<()> {
        let written = |a: &mut Encoder| {
            a.opaque(from.0).opaque(from.1.as_bytes()).opaque(to.0).opaque(to.1.as_bytes());
        };
        self.nfs(14, written).await.map(drop)
    }

    pub(crate) async fn link(&mut self, handle: &[u8], directory: &[u8], name: &str) -> Said<()> {
        let written = |a: &mut Encoder| {
            a.opaque(handle).opaque(directory).opaque(name.as_bytes());
        };
        self.nfs(15, written).await.map(drop)
    }

    /// One page: name and cookie of each entry, the verifier, and whether it is the last.
    pub(crate) async fn readdir(
        &mut self,
        directory: &[u8],
        cookie: u64,
        verifier: u64,
        count: u32,
    ) -> Said<(Vec<(String, u64)>, u64, bool)> {
        let mut d = self
            .nfs(16, |a| {
                a.opaque(directory).double(cookie).double(verifier).word(count);
            })
            .await?;
        after(&mut d);
        let verifier = d.double().unwrap();
        let mut entries = Vec::new();
        while d.flag().unwrap() {
            d.double().unwrap();
            let name = String::from_utf8(d.opaque(1024).unwrap().to_vec()).unwrap();
            entries.push((name, d.double().unwrap()));
        }
        Ok((entries, verifier, d.flag().unwrap()))
    }

    /// One page with attributes and handles, where there are any.
    pub(crate) async fn readdirplus(
        &mut self,
        directory: &[u8],
        cookie: u64,
        verifier: u64,
        count: u32,
    ) -> Said<(Vec<Entry>, u64, bool)> {
        let written = |a: &mut Encoder| {
            a.opaque(directory).double(cookie).double(verifier).word(count).word(count);
        };
        let mut d = self.nfs(17, written).await?;
        after(&mut d);
        let verifier = d.double().unwrap();
        let mut entries = Vec::new();
        while d.flag().unwrap() {
            d.double().unwrap();
            let name = String::from_utf8(d.opaque(1024).unwrap().to_vec()).unwrap();
            let cookie = d.double().unwrap();
            let attributes = d.flag().unwrap().then(|| attributes(&mut d));
            let handle = d.flag().unwrap().then(|| d.opaque(64).unwrap());
            entries.push((name, cookie, attributes.zip(handle)));
        }
        Ok((entries, verifier, d.flag().unwrap()))
    }

    /// Every name, page by page.
    pub(crate) async fn names(&mut self, directory: &[u8], count: u32) -> Said<Vec<String>> {
        let (mut names, mut cookie, mut verifier) = (Vec::new(), 0, 0);
        loop {
            let (entries, found, end) = self.readdir(directory, cookie, verifier, count).await?;
            verifier = found;
            cookie = entries.last().map_or(cookie, |(_, cookie)| *cookie);
            names.extend(entries.into_iter().map(|(name, _)| name));
            if end {
                names.retain(|name| name != "." && name != "..");
                names.sort();
                return Ok(names);
            }
        }
    }

    pub(crate) async fn fsstat(&mut self, handle: &[u8]) -> Said<(u64, u64)> {
        let mut d = self
            .nfs(18, |a| {
                a.opaque(handle);
            })
            .await?;
        after(&mut d);
        Ok((d.double().unwrap(), d.double().unwrap()))
    }

    pub(crate) async fn fsinfo(&mut self, handle: &[u8]) -> Said<u32> {
        let mut d = self
            .nfs(19, |a| {
                a.opaque(handle);
            })
            .await?;
        after(&mut d);
        Ok(d.word().unwrap())
    }

    pub(crate) async fn pathconf(&mut self, handle: &[u8]) -> Said<()> {
        self.nfs(20, |a| {
            a.opaque(handle);
        })
        .await
        .map(drop)
    }

    pub(crate) async fn commit(&mut self, handle: &[u8]) -> Said<u64> {
        let mut d = self
            .nfs(21, |a| {
                a.opaque(handle).double(0).word(0);
            })
            .await?;
        change(&mut d);
        Ok(d.double().unwrap())
    }
}
