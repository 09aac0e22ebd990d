import { mount } from 'svelte'
import './page.css'
import App from './App.svelte'
import { app } from './app.svelte'

mount(App, { target: document.getElementById('page') as HTMLElement })
void app.start()
