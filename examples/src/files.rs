//! The files that the S3 server serves. Reading is done in whole objects and on many threads, since the server of a benchmark must not be
//! what is measured; all else is left to the crate `s3s-fs`.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use hyper::body::Bytes;
use s3s::dto::*;
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};
use s3s_fs::FileSystem;

/// A folder of buckets.
pub(crate) struct SwiftFiles {
    root: PathBuf,
    files: FileSystem,
}

impl SwiftFiles {
    pub(crate) fn new(root: PathBuf, files: FileSystem) -> Self {
        Self { root, files }
    }

    /// Where an object lies. Keys with parts that lead elsewhere name nothing.
    fn place(&self, bucket: &str, key: &str) -> Option<PathBuf> {
        let plain = |part: &str| !matches!(part, "" | "." | "..");
        (plain(bucket) && !bucket.contains('/') && key.split('/').all(plain)).then(|| self.root.join(bucket).join(key))
    }
}

/// The part of a file that is asked for, and all there is to tell of it.
fn read(place: &PathBuf, range: Option<Range>) -> S3Result<GetObjectOutput> {
    use std::os::unix::fs::FileExt;
    let missing = |error| s3_error!(error, NoSuchKey);
    let broken = |error| s3_error!(error, InternalError);
    let file = std::fs::File::open(place).map_err(missing)?;
    let metadata = file.metadata().map_err(broken)?;
    if !metadata.is_file() {
        return Err(s3_error!(NoSuchKey));
    }
    let (modified, length) = (metadata.modified().map_err(broken)?, metadata.len());
    let part = match &range {
        Some(range) => range.check(length)?,
        None => 0..length,
    };
    let mut bytes = vec![0; (part.end - part.start) as usize];
    file.read_exact_at(&mut bytes, part.start).map_err(broken)?;
    let age = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(GetObjectOutput {
        content_length: i64::try_from(bytes.len()).ok(),
        content_range: range.map(|_| format!("bytes {}-{}/{length}", part.start, part.end.saturating_sub(1))),
        body: Some(Body::from(Bytes::from(bytes)).into()),
        last_modified: Some(modified.into()),
        e_tag: Some(ETag::Strong(format!("{:x}-{length:x}", age.as_nanos()))),
        ..GetObjectOutput::default()
    })
}

/// Methods that are the file system's own.
macro_rules! delegated {
    ($($method:ident: $input:ty => $output:ty),+ $(,)?) => {
        #[async_trait]
        impl S3 for SwiftFiles {
            async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
                let GetObjectInput { bucket, key, range, .. } = request.input;
                let place = self.place(&bucket, &key).ok_or_else(|| s3_error!(NoSuchKey))?;
                let reading = tokio::task::spawn_blocking(move || read(&place, range)).await;
                Ok(S3Response::new(reading.map_err(|error| s3_error!(error, InternalError))??))
            }

            $(async fn $method(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                self.files.$method(request).await
            })+
        }
    };
}

delegated! {
    head_bucket: HeadBucketInput => HeadBucketOutput,
    head_object: HeadObjectInput => HeadObjectOutput,
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output,
    put_object: PutObjectInput => PutObjectOutput,
    delete_object: DeleteObjectInput => DeleteObjectOutput,
    delete_objects: DeleteObjectsInput => DeleteObjectsOutput,
    create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput,
    upload_part: UploadPartInput => UploadPartOutput,
    complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput,
    abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput,
}
