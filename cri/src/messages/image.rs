//! Images and the file systems that hold them.

use super::*;

messages! {
    ImageSpec {
        image: string = 1,
        annotations: map(string, string) = 2,
        user_specified_image: string = 18,
        runtime_handler: string = 19,
        image_ref: string = 20,
    }
    ImageFilter { image: message(ImageSpec) = 1 }
    ListImagesRequest { filter: message(ImageFilter) = 1 }
    Image {
        id: string = 1,
        repo_tags: repeated string = 2,
        repo_digests: repeated string = 3,
        size: uint64 = 4,
        uid: message(Int64Value) = 5,
        username: string = 6,
        spec: message(ImageSpec) = 7,
        pinned: bool = 8,
    }
    ListImagesResponse { images: repeated message(Image) = 1 }
    StreamImagesRequest { filter: message(ImageFilter) = 1 }
    StreamImagesResponse { images: repeated message(Image) = 1 }
    ImageStatusRequest { image: message(ImageSpec) = 1, verbose: bool = 2 }
    ImageStatusResponse { image: message(Image) = 1, info: map(string, string) = 2 }
    AuthConfig {
        username: string = 1,
        password: string = 2,
        auth: string = 3,
        server_address: string = 4,
        identity_token: string = 5,
        registry_token: string = 6,
    }
    PullImageRequest {
        image: message(ImageSpec) = 1,
        auth: message(AuthConfig) = 2,
        sandbox_config: message(PodSandboxConfig) = 3,
    }
    PullImageResponse { image_ref: string = 1 }
    RemoveImageRequest { image: message(ImageSpec) = 1 }
    RemoveImageResponse {}
    ImageFsInfoRequest {}
    FilesystemIdentifier { mountpoint: string = 1 }
    ImageFsInfoResponse {
        image_filesystems: repeated message(FilesystemUsage) = 1,
        container_filesystems: repeated message(FilesystemUsage) = 2,
    }
}
