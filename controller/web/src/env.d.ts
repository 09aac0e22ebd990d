/// <reference types="svelte" />
/// <reference types="vite/client" />

/** The digest of the sources that this build was made from. */
declare const __BUILD__: string
