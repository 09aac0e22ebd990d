import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'

// The digest of the sources, which tests/page_build.py computes: the page compares it with the server's.
const build = process.env.MILLRACE_PAGE ?? 'development'

export default defineConfig({
  plugins: [svelte()],
  base: './',
  define: { __BUILD__: JSON.stringify(build) },
  worker: { format: 'es' },
  build: {
    outDir: 'build',
    target: 'es2022',
    assetsInlineLimit: 0, // data: URLs of scripts would violate the policy
    modulePreload: { polyfill: false },
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'], // light-dark()
    license: { fileName: 'licenses.txt' },
    reportCompressedSize: false
  }
})
