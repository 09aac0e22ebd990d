// The page's end of a stream.

import { scriptUrl } from '../trusted'
import ownUrl from './own?worker&url'
import sharedUrl from './shared?sharedworker&url'
import type { Message } from './types'

export interface Stream {
  close(): void
}

export type Listener = (message: Message) => void

export function openLive(listener: Listener): Stream {
  if (typeof SharedWorker === 'undefined') return openOwn('/v1/view/stream', true, listener)
  // The name keeps tabs of two versions of the page apart.
  const worker = new SharedWorker(scriptUrl(sharedUrl), { type: 'module', name: `millrace ${__BUILD__}` })
  const port = worker.port
  port.onmessage = (event: MessageEvent<Message>) => listener(event.data)
  port.postMessage('start')
  const bye = () => port.postMessage('bye')
  addEventListener('pagehide', bye)
  return {
    close() {
      removeEventListener('pagehide', bye)
      port.onmessage = null
      bye()
    }
  }
}

export function openReplay(fromMs: number, toMs: number, speed: number, listener: Listener): Stream {
  const query = `from=${Math.round(fromMs)}000000&to=${Math.round(toMs)}000000&speed=${speed}`
  return openOwn(`/v1/view/replay?${query}`, false, listener)
}

function openOwn(path: string, reconnect: boolean, listener: Listener): Stream {
  const worker = new Worker(scriptUrl(ownUrl), { type: 'module' })
  worker.onmessage = (event: MessageEvent<Message>) => listener(event.data)
  worker.postMessage({ url: new URL(path, location.origin).href, reconnect })
  return {
    close() {
      worker.onmessage = null
      worker.terminate()
    }
  }
}
