//! The CRI image service.

use std::sync::Arc;

use cri::{
    AuthConfig, FilesystemUsage, ImageFsInfoRequest, ImageFsInfoResponse, ImageService, ImageSpec, ImageStatusRequest,
    ImageStatusResponse, Int64Value, ListImagesRequest, ListImagesResponse, PullImageRequest, PullImageResponse,
    RemoveImageRequest, RemoveImageResponse, ResponseStream, Status, StreamImagesRequest, StreamImagesResponse,
    UInt64Value,
};

use super::runtime::chunks;
use super::{Service, blocking, status};
use crate::images::{Credentials, Error, Image};
use crate::shim::log::Timestamp;

impl ImageService for Service {
    async fn list_images(&self, request: ListImagesRequest) -> Result<ListImagesResponse, Status> {
        let reference = request.filter.and_then(|f| f.image).map(|i| i.image).unwrap_or_default();
        Ok(ListImagesResponse { images: self.list(&reference).await? })
    }

    async fn stream_images(
        &self,
        request: StreamImagesRequest,
    ) -> Result<ResponseStream<StreamImagesResponse>, Status> {
        let reference = request.filter.and_then(|f| f.image).map(|i| i.image).unwrap_or_default();
        Ok(chunks(self.list(&reference).await?, |images| StreamImagesResponse { images }))
    }

    async fn image_status(&self, request: ImageStatusRequest) -> Result<ImageStatusResponse, Status> {
        let reference = name(request.image)?;
        let progress = self.0.pulls.line(&reference);
        let images = self.0.images.clone();
        let found = blocking(move || images.get(&reference)).await.map_err(status)?;
        let details = found.iter().map(|image| ("info".to_string(), details(image)));
        let progress = progress.into_iter().map(|line| ("progress".to_string(), serde_json::json!(line).to_string()));
        let info = details.chain(progress).filter(|_| request.verbose).collect();
        Ok(ImageStatusResponse { image: found.map(|i| message(&i)), info })
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<PullImageResponse, Status> {
        let reference = name(request.image)?;
        let auth = request.auth.map(credentials).transpose()?;
        let pull = self.0.pulls.begin(&reference);
        let id = self.0.images.pull(&reference, auth, &*pull).await.map_err(pull_status)?;
        Ok(PullImageResponse { image_ref: id })
    }

    async fn remove_image(&self, request: RemoveImageRequest) -> Result<RemoveImageResponse, Status> {
        self.0.images.remove(&name(request.image)?).await.map_err(pull_status)?;
        Ok(RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: ImageFsInfoRequest) -> Result<ImageFsInfoResponse, Status> {
        let images = self.0.images.clone();
        let usage = blocking(move || images.fs_usage()).await.map_err(status)?;
        let filesystem = FilesystemUsage {
            timestamp: Timestamp::now().0,
            fs_id: Some(self.filesystem()),
            used_bytes: Some(UInt64Value { value: usage.bytes }),
            inodes_used: Some(UInt64Value { value: usage.inodes }),
        };
        Ok(ImageFsInfoResponse { image_filesystems: vec![filesystem.clone()], container_filesystems: vec![filesystem] })
    }
}

impl Service {
    async fn list(&self, reference: &str) -> Result<Vec<cri::Image>, Status> {
        let (images, reference) = (self.0.images.clone(), reference.to_string());
        let found: Vec<Arc<Image>> = blocking(move || match reference.as_str() {
            "" => images.list(),
            name => images.get(name).into_iter().collect(),
        })
        .await
        .map_err(status)?;
        Ok(found.iter().map(|i| message(i)).collect())
    }
}

fn name(image: Option<ImageSpec>) -> Result<String, Status> {
    match image.map(|i| i.image).filter(|name| !name.is_empty()) {
        Some(name) => Ok(name),
        None => Err(Status::invalid_argument("image.image is empty")),
    }
}

fn message(image: &Image) -> cri::Image {
    let user = image.config.user.split(':').next().unwrap_or_default();
    // As for the container's user: a string of digits is a number, anything else is a name.
    let uid = user.bytes().all(|byte| byte.is_ascii_digit()).then(|| user.parse::<i64>().ok()).flatten();
    cri::Image {
        id: image.id.clone(),
        repo_tags: image.repo_tags.clone(),
        repo_digests: image.repo_digests.clone(),
        size: image.size,
        username: if uid.is_some() { String::new() } else { user.into() },
        uid: uid.map(|value| Int64Value { value }),
        spec: None,
        pinned: image.pinned,
    }
}

/// The details in the format of other runtimes.
fn details(image: &Image) -> String {
    serde_json::json!({ "chainID": image.chain.last(), "imageSpec": { "config": image.config } }).to_string()
}

fn credentials(auth: AuthConfig) -> Result<Credentials, Status> {
    let plain = Credentials {
        username: auth.username,
        password: auth.password,
        identity_token: auth.identity_token,
        registry_token: auth.registry_token,
        server_address: auth.server_address,
    };
    plain.with_encoded(&auth.auth).map_err(|reason| Status::invalid_argument(format!("auth: {reason}")))
}

fn pull_status(error: Error) -> Status {
    let text = error.chain();
    if error.is_not_found() { Status::not_found(text) } else { Status::unknown(text) }
}
