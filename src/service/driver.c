/* driver.c - the optional thread of a service: it runs the batch that was started.
 *
 * One batch at a time: given by start, taken by the thread, handed back when its state is ENDED. */
#include <string.h>

#include "base/fail.h"
#include "service/service.h"

static void *drive(void *argument) {
    ferry_copy_service_t *service = argument;
    fy_driver_t *driver = &service->driver;
    (void)pthread_mutex_lock(&driver->lock);
    while (!driver->stop) {
        ferry_kept_batch_t *job = driver->job;
        if (job == NULL) {
            (void)pthread_cond_wait(&driver->changed, &driver->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&driver->lock);
        fy_kept_finish(job);
        (void)pthread_mutex_lock(&driver->lock);
        driver->job = NULL;
        (void)pthread_cond_broadcast(&driver->changed);
    }
    (void)pthread_mutex_unlock(&driver->lock);
    return NULL;
}

ferry_status_t fy_driver_start(ferry_copy_service_t *service, ferry_error_t *err) {
    fy_driver_t *driver = &service->driver;
    (void)pthread_mutex_init(&driver->lock, NULL);
    (void)pthread_cond_init(&driver->changed, NULL);
    int number = pthread_create(&driver->thread, NULL, drive, service);
    if (number != 0) {
        (void)pthread_cond_destroy(&driver->changed);
        (void)pthread_mutex_destroy(&driver->lock);
        (void)fy_fail(err, FERRY_IO, "no thread for a copy service: %s", strerror(number));
        if (err != NULL) {
            err->sys_errno = number;
        }
        return FERRY_IO;
    }
    driver->there = true;
    return FERRY_OK;
}

void fy_driver_stop(ferry_copy_service_t *service) {
    fy_driver_t *driver = &service->driver;
    if (!driver->there) {
        return;
    }
    (void)pthread_mutex_lock(&driver->lock);
    driver->stop = true;
    (void)pthread_cond_broadcast(&driver->changed);
    (void)pthread_mutex_unlock(&driver->lock);
    (void)pthread_join(driver->thread, NULL);
    (void)pthread_cond_destroy(&driver->changed);
    (void)pthread_mutex_destroy(&driver->lock);
    driver->there = false;
}

void fy_driver_give(ferry_copy_service_t *service, ferry_kept_batch_t *batch) {
    fy_driver_t *driver = &service->driver;
    (void)pthread_mutex_lock(&driver->lock);
    driver->job = batch;
    (void)pthread_cond_broadcast(&driver->changed);
    (void)pthread_mutex_unlock(&driver->lock);
}

void fy_driver_wait(ferry_copy_service_t *service, ferry_kept_batch_t *batch) {
    fy_driver_t *driver = &service->driver;
    (void)pthread_mutex_lock(&driver->lock);
    while (driver->job == batch) {
        (void)pthread_cond_wait(&driver->changed, &driver->lock);
    }
    (void)pthread_mutex_unlock(&driver->lock);
}
