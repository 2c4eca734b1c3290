//! Putting whole objects: in one request, or in parts where one would be long.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::retry::{RetryContext, RetryPolicy};
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutPayload, WriteMultipart};

use crate::retry::jitter;
use crate::store::Store;

/// Objects larger than this go in parts to remote stores.
const LARGE: usize = 64 << 20;
const PART: usize = 16 << 20;
/// Parts of one object that are under way at one time.
const PARTS: usize = 4;

/// How often a part is sent before the whole object is begun anew.
const SENDINGS: usize = 5;

/// Puts a whole object, replacing what was there: nobody sees a part of it. On the local disk it is written beside its place and
/// renamed.
pub(crate) async fn upload(store: &Store, path: &Path, bytes: Bytes) -> Result<(), Error> {
    if store.gate.is_none() || bytes.len() <= LARGE {
        return store.objects.put(path, PutPayload::from_bytes(bytes)).await.map(|_| ());
    }
    let options = PutMultipartOptions::default().with_retry_policy(Arc::new(AFew));
    let upload = store.objects.put_multipart_opts(path, options).await?;
    let mut parts = WriteMultipart::new_with_chunk_size(upload, PART);
    for start in (0..bytes.len()).step_by(PART) {
        if let Err(error) = parts.wait_for_capacity(PARTS).await {
            // What has arrived costs money until it is aborted; the error that matters is the first.
            drop(parts.abort().await);
            return Err(error);
        }
        parts.put(bytes.slice(start..bytes.len().min(start + PART)));
    }
    // Aborts by itself if it fails.
    parts.finish().await.map(|_| ())
}

/// Repeats a part a few times.
#[derive(Debug)]
struct AFew;

#[async_trait::async_trait]
impl RetryPolicy for AFew {
    async fn retry(&self, context: RetryContext) -> bool {
        let more = context.attempt < SENDINGS;
        if more {
            tokio::time::sleep(jitter(context.attempt).max(Duration::from_millis(1))).await;
        }
        more
    }
}
